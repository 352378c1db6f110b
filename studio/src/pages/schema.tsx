// The schema: types as a picture with counts, indexes and constraints; its text; and the plan of a migration.
import { useEffect, useMemo, useState } from "preact/hooks";
import { Editor } from "../components/editor";
import { MigrationSteps, type Step } from "../components/migration_steps";
import { TypePicture } from "../components/type_picture";
import { Badge, Button, Empty, ErrorBox, Loading, Tabs } from "../components/ui";
import { call, get, graphPath, placeOf, type ApiError } from "../lib/api";
import { asApiError, useData, useSession } from "../lib/data";
import { formatCount, plural } from "../lib/format";
import { branchOf, hrefOf, navigate, patchRoute } from "../lib/route";
import type { EdgeInfo, IndexInfo, Lint, NodeInfo, Snapshot, TypeInfo } from "../lib/types";

export function SchemaPage() {
  const { route, types } = useSession();
  const view = route.params.view ?? "picture";
  const place = placeOf(route);
  const keys = [route.graph, branchOf(route), route.params.at];
  const snapshot = useData((signal) => get<Snapshot>(graphPath(route.graph, "/snapshot"), place, signal), keys);
  const indexes = useData((signal) => get<{ indexes: IndexInfo[] }>(graphPath(route.graph, "/indexes"), place, signal), keys);
  const counts = useMemo(
    () => new Map(snapshot.value?.datasets.map((item) => [item.type_name, item.entity_count]) ?? []),
    [snapshot.value],
  );
  const all: TypeInfo[] = types ? [...types.nodes, ...types.edges, ...types.interfaces] : [];
  const chosen = all.find((item) => item.name === route.params.type) ?? types?.nodes[0];
  return (
    <div class="schema">
      <div class="toolbar">
        <h1 class="toolbar-title">Schema</h1>
        <Tabs
          label="Views of the schema"
          items={[{ id: "picture", label: "Picture" }, { id: "source", label: "Source" }, { id: "plan", label: "Migration" }]}
          chosen={view}
          onChoose={(id) => navigate({ params: { view: id } }, { replace: true })}
        />
        <span class="spacer" />
        {types && <span class="muted">{plural(types.nodes.length, "node type")} · {plural(types.edges.length, "edge type")}</span>}
      </div>
      <ErrorBox error={snapshot.error} />
      {!types ? (
        <Loading />
      ) : view === "picture" ? (
        <div class="schema-split">
          <TypePicture types={types} counts={counts} chosen={chosen?.name ?? ""} onChoose={(type) => navigate({ params: { type } }, { replace: true })} />
          {chosen ? (
            <TypeDetails type={chosen} count={counts.get(chosen.name)} indexes={indexes.value?.indexes.filter((item) => item.type === chosen.name) ?? []} />
          ) : (
            <Empty title="The schema has no types." />
          )}
        </div>
      ) : (
        <SourceView key={view} plans={view === "plan"} />
      )}
    </div>
  );
}

function TypeDetails({ type, count, indexes }: { type: TypeInfo; count?: number; indexes: IndexInfo[] }) {
  const { route } = useSession();
  const edge = "source" in type ? (type as EdgeInfo) : undefined;
  const node = "implements" in type ? (type as NodeInfo) : undefined;
  const uniques = type.uniques.filter((item) => item.length > 1);
  return (
    <aside class="type-details" aria-label={`Type ${type.name}`}>
      <h2>{type.name}</h2>
      <p class="muted">
        {edge ? `Edge from ${edge.source} to ${edge.target}` : node ? "Node" : "Interface"}
        {count !== undefined && ` · ${plural(count, edge ? "edge" : "node")}`}
        {node && node.implements.length > 0 && ` · implements ${node.implements.join(", ")}`}
      </p>
      {type.description && <p>{type.description}</p>}
      {node && (
        <p class="row">
          <a class="button plain" href={hrefOf(patchRoute(route, { page: "explore", params: { type: type.name } }))}>Explore</a>
        </p>
      )}
      {type.properties.length > 0 && (
        <table class="plain-table">
          <thead>
            <tr><th scope="col">Property</th><th scope="col">Type</th></tr>
          </thead>
          <tbody>
            {type.properties.map((item) => (
              <tr key={item.name}>
                <th scope="row">
                  {item.name}
                  {item.description && <span class="muted small"> {item.description}</span>}
                </th>
                <td>
                  <code>{item.type}</code>{" "}
                  {type.key?.includes(item.name) && <Badge tone="accent">key</Badge>}{" "}
                  {type.uniques.some((columns) => columns.length === 1 && columns[0] === item.name) && <Badge>unique</Badge>}{" "}
                  {type.indexes.some((columns) => columns[0] === item.name) && !type.key?.includes(item.name) && <Badge>index</Badge>}{" "}
                  {item.full_text && <Badge>text</Badge>}{" "}
                  {item.embedded_from && <Badge>embeds {item.embedded_from}</Badge>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {(uniques.length > 0 || type.ranges.length > 0 || type.checks.length > 0 || edge) && <h3>Constraints</h3>}
      <ul class="bullets">
        {edge && <li>{cardinalityText(edge)}</li>}
        {uniques.map((item) => <li key={item.join()}>Unique: {item.join(", ")}</li>)}
        {type.ranges.map((item) => <li key={item.property}><code>{item.property}</code> from {item.min ?? "−∞"} to {item.max ?? "∞"}</li>)}
        {type.checks.map((item) => <li key={item.property}><code>{item.property}</code> matches <code>{item.pattern}</code></li>)}
      </ul>
      {indexes.length > 0 && (
        <>
          <h3>Indexes</h3>
          <ul class="bullets">
            {indexes.map((item) => (
              <li key={item.property + item.kind}>
                <code>{item.property}</code> {item.kind}, {item.rows === item.covered ? "complete" : `${formatCount(item.covered)} of ${formatCount(item.rows)} rows`}
              </li>
            ))}
          </ul>
        </>
      )}
    </aside>
  );
}

function cardinalityText(edge: EdgeInfo): string {
  const { min, max } = edge.cardinality;
  if (min === 0 && max === null) return `Any number of edges for each ${edge.source}`;
  return `${min} to ${max ?? "any number of"} edges for each ${edge.source}`;
}

interface Plan {
  supported: boolean;
  steps: Step[];
}

function SourceView({ plans }: { plans: boolean }) {
  const { route, permissions, notify, reloadTypes } = useSession();
  const source = useData(
    (signal) => get<{ schema_source: string }>(graphPath(route.graph, "/schema"), placeOf(route), signal),
    [route.graph, branchOf(route), route.params.at],
  );
  const [text, setText] = useState<string>();
  const [loses, setLoses] = useState(false);
  const [plan, setPlan] = useState<Plan>();
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  useEffect(() => setText(source.value?.schema_source), [source.value]);
  if (source.error) return <ErrorBox error={source.error} />;
  if (text === undefined) return <Loading />;

  const send = async <T,>(path: string): Promise<T | undefined> => {
    setBusy(true);
    setError(undefined);
    try {
      return await call<T>("POST", graphPath(route.graph, path), { schema_source: text, branch: branchOf(route), allow_data_loss: loses });
    } catch (problem) {
      setError(asApiError(problem));
      return undefined;
    } finally {
      setBusy(false);
    }
  };
  const preview = async () => setPlan(await send<Plan>("/schema/plan"));
  const apply = async () => {
    if (!(await send("/schema/apply"))) return;
    notify(`The schema of ${branchOf(route)} is migrated.`);
    setPlan(undefined);
    reloadTypes();
    source.reload();
  };
  const check = async (checked: string) => (await call<Lint>("POST", graphPath(route.graph, "/lint"), { schema_source: checked })).diagnostics;
  const mayApply = permissions?.actions.schema_apply && !route.params.at;
  return (
    <div class={plans ? "migration" : "source"}>
      <Editor language="pg" label="Schema text" value={text} onChange={(edited) => (setText(edited), setPlan(undefined))} onRun={preview} check={check} readOnly={!plans} />
      {plans && (
        <section aria-label="Migration plan" class="plan-panel">
          <p class="muted">Edit the schema and preview how <strong>{branchOf(route)}</strong> would be migrated. Nothing changes until you apply it.</p>
          <label class="check">
            <input type="checkbox" checked={loses} onChange={(event) => (setLoses(event.currentTarget.checked), setPlan(undefined))} />
            Allow steps that lose data
          </label>
          <div class="row">
            <Button kind="primary" id="plan" disabled={busy} onClick={preview}>Preview</Button>
            {mayApply && plan?.supported && plan.steps.length > 0 && <Button kind="danger" disabled={busy} onClick={apply}>Apply to {branchOf(route)}</Button>}
            {permissions && !permissions.actions.schema_apply && <span class="muted">The policy does not let you apply it.</span>}
          </div>
          <ErrorBox error={error} />
          {plan && <MigrationSteps steps={plan.steps} />}
        </section>
      )}
    </div>
  );
}
