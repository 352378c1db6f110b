// The server and the graph for those who run them: health, types, maintenance, running requests and metrics.
import { Maintenance } from "../components/maintenance";
import { Metrics } from "../components/metrics";
import { Running } from "../components/running";
import { Badge, ErrorBox, Loading, Tabs } from "../components/ui";
import { get, graphPath, placeOf } from "../lib/api";
import { useData, useSession } from "../lib/data";
import { formatCount } from "../lib/format";
import { branchOf, hrefOf, navigate, patchRoute } from "../lib/route";
import type { IndexInfo, Snapshot } from "../lib/types";

export function OperatePage() {
  const { route } = useSession();
  const view = route.params.view || "overview";
  return (
    <div class="page">
      <div class="toolbar">
        <h1 class="toolbar-title">Operate</h1>
        <Tabs
          label="Parts of the operation"
          items={[
            { id: "overview", label: "Overview" },
            { id: "maintenance", label: "Maintenance" },
            { id: "running", label: "Running" },
            { id: "metrics", label: "Metrics" },
          ]}
          chosen={view}
          onChoose={(id) => navigate({ params: { view: id === "overview" ? "" : id } })}
        />
      </div>
      {view === "maintenance" ? <Maintenance /> : view === "running" ? <Running /> : view === "metrics" ? <Metrics /> : <Overview />}
    </div>
  );
}

function Overview() {
  const { route, branches } = useSession();
  const place = placeOf(route);
  const keys = [route.graph, branchOf(route), route.params.at];
  const health = useData(async (signal) => {
    const [alive, ready] = await Promise.all([
      get<{ status: string; version: string }>("healthz", {}, signal),
      get<{ status: string }>("readyz", {}, signal).then((answer) => answer.status, () => "not ready"),
    ]);
    return { ...alive, ready };
  }, []);
  const graphs = useData((signal) => get<{ graphs: { graph_id: string; uri: string }[] }>("graphs", {}, signal), []);
  const snapshot = useData((signal) => get<Snapshot>(graphPath(route.graph, "/snapshot"), place, signal), keys);
  const indexes = useData((signal) => get<{ indexes: IndexInfo[] }>(graphPath(route.graph, "/indexes"), place, signal), keys);
  if (snapshot.error) return <ErrorBox error={snapshot.error} />;
  if (!snapshot.value) return <Loading />;
  const { datasets } = snapshot.value;
  const count = (kind: string) => datasets.filter((item) => item.entity_kind === kind).reduce((sum, item) => sum + item.entity_count, 0);
  const most = Math.max(1, ...datasets.map((item) => item.entity_count));
  return (
    <>
      <dl class="tiles">
        <Tile label="Server" value={health.error ? "does not respond" : (health.value?.ready ?? "…")} hint={health.value ? `version ${health.value.version}` : ""} good={health.value?.ready === "ready"} />
        <Tile label="Nodes" value={formatCount(count("node"))} hint={`on ${branchOf(route)}`} />
        <Tile label="Edges" value={formatCount(count("edge"))} hint={`on ${branchOf(route)}`} />
        <Tile label="Branches" value={formatCount(branches.length)} />
        <Tile label="Manifest version" value={formatCount(snapshot.value.graph_manifest_version)} />
      </dl>
      <section class="card" aria-label="Types">
        <h2>Types</h2>
        <div class="scroll-x" tabIndex={0} role="region" aria-label="Rows by type">
          <table class="plain-table types-table">
            <thead>
              <tr><th scope="col">Type</th><th scope="col">Kind</th><th scope="col" class="number">Rows</th><th scope="col">Share</th><th scope="col">Indexes</th><th scope="col" class="number">Table version</th></tr>
            </thead>
            <tbody>
              {datasets.map((item) => {
                const own = indexes.value?.indexes.filter((index) => index.type === item.type_name) ?? [];
                const behind = own.filter((index) => index.covered < index.rows).length;
                return (
                  <tr key={item.type_name}>
                    <th scope="row"><a href={hrefOf(patchRoute(route, { page: "schema", params: { type: item.type_name } }))}>{item.type_name}</a></th>
                    <td class="muted">{item.entity_kind}</td>
                    <td class="number">{formatCount(item.entity_count)}</td>
                    <td><span class="bar" aria-hidden="true"><span style={{ width: `${(item.entity_count / most) * 100}%` }} /></span></td>
                    <td>{own.length === 0 ? <span class="muted">none</span> : behind ? <Badge tone="change">{behind} of {own.length} behind</Badge> : <Badge tone="add">{own.length} complete</Badge>}</td>
                    <td class="number muted">{tableVersion(item.published_dataset_version)}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      </section>
      <section class="card" aria-label="Graphs">
        <h2>Graphs of this server</h2>
        {graphs.error && <p class="muted">The policy does not let you list them.</p>}
        <ul class="bullets">
          {graphs.value?.graphs.map((item) => (
            <li key={item.graph_id} class="row">
              <a href={hrefOf(patchRoute(route, { graph: item.graph_id }))} aria-current={item.graph_id === route.graph ? "true" : undefined}>{item.graph_id}</a>
              <span class="muted small uri">{item.uri}</span>
            </li>
          ))}
        </ul>
      </section>
    </>
  );
}

// Table versions outside the lineage are large random numbers; their last digits tell them apart.
const tableVersion = (version: number | bigint): string => {
  const text = String(version);
  return text.length > 9 ? `…${text.slice(-6)}` : text;
};

function Tile({ label, value, hint, good }: { label: string; value: string; hint?: string; good?: boolean }) {
  return (
    <div class="tile">
      <dt>{label}</dt>
      <dd>
        <span class="tile-value">{good !== undefined && <span class={good ? "dot good" : "dot"} aria-hidden="true" />}{value}</span>
        {hint && <span class="muted small">{hint}</span>}
      </dd>
    </div>
  );
}
