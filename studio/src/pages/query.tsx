// Write and run queries: table, graph, JSON and plan of the result; stored queries and history.
import { useEffect, useMemo, useState } from "preact/hooks";
import { Editor } from "../components/editor";
import { ParamsForm, readValues, textOf, valuesOf, type Values } from "../components/params_form";
import { QueryLibrary } from "../components/query_library";
import { ResultGraph } from "../components/result_graph";
import { DataTable } from "../components/table";
import { Badge, Button, Empty, ErrorBox, Loading, Tabs } from "../components/ui";
import { call, get, graphPath, placeOf, writeJson, type ApiError } from "../lib/api";
import { asApiError, useData, useDebounced, useSession } from "../lib/data";
import { download } from "../lib/files";
import { formatCount, plural, shortId, toCsv } from "../lib/format";
import { usePast, useSaved } from "../lib/kept_queries";
import { sampleQuery } from "../lib/query_text";
import { branchOf, hrefOf, navigate, patchRoute } from "../lib/route";
import type { ChangeResult, Lint, LintedQuery, Param, ReadResult, StoredQuery } from "../lib/types";

type Outcome = { read: ReadResult; seconds: number; text: string } | { change: ChangeResult; seconds: number } | { error: ApiError };

export function QueryPage() {
  const session = useSession();
  const { route, types, notify } = session;
  const { q = "", name = "", stored = "", view = "table", p } = route.params;
  const [text, setText] = useState(q);
  const [lint, setLint] = useState<Lint>();
  const [values, setValues] = useState<Values>(() => valuesOf(p));
  const [outcome, setOutcome] = useState<Outcome>();
  const [running, setRunning] = useState<AbortController>();
  const [library, setLibrary] = useState(() => innerWidth > 1100);
  const catalog = useData(async (signal) => get<{ queries: StoredQuery[] }>(graphPath(route.graph, "/queries"), {}, signal), [route.graph]);
  const [past, addPast, clearPast] = usePast(route.graph);
  const [saved, save, remove] = useSaved(route.graph);

  useEffect(() => {
    if (q !== text) setText(q);
  }, [q]);
  useEffect(() => {
    if (!q && !stored && types) setText(sampleQuery(types));
  }, [types]);
  useEffect(() => setValues(valuesOf(p)), [p]);

  const chosenStored = catalog.value?.queries.find((item) => item.name === stored);
  const chosen: LintedQuery | undefined = lint?.queries.find((item) => item.name === name) ?? lint?.queries[0];
  const params: Param[] = chosenStored?.params ?? chosen?.params ?? [];
  const mutates = chosenStored?.mutation ?? chosen?.mutation ?? false;
  const at = route.params.at;

  const keepText = useDebounced((newText: string) => navigate({ params: { q: newText, stored: "" } }, { replace: true }), 400);
  const edit = (newText: string) => {
    setText(newText);
    if (newText !== q) keepText(newText);
  };
  const check = async (checked: string) => {
    try {
      const found = await call<Lint>("POST", graphPath(route.graph, "/lint"), { query: checked, ...placeOf(route) });
      setLint((old) => (found.queries.length || !old ? found : { ...found, queries: old.queries }));
      return found.diagnostics;
    } catch {
      // The run reports it.
      return [];
    }
  };

  const run = async () => {
    if (running) return;
    const aborter = new AbortController();
    const started = performance.now();
    setRunning(aborter);
    try {
      let found = lint?.queries;
      if (!stored) found = (await call<Lint>("POST", graphPath(route.graph, "/lint"), { query: text, ...placeOf(route) })).queries;
      const one = found?.find((item) => item.name === name) ?? found?.[0];
      const given = readValues(chosenStored?.params ?? one?.params ?? [], values);
      const writes = chosenStored?.mutation ?? one?.mutation ?? false;
      const which = !stored && one && (found?.length ?? 0) > 1 ? { name: one.name } : {};
      const path = stored ? `/queries/${encodeURIComponent(stored)}` : writes ? "/mutate" : "/query";
      const place = writes ? { branch: branchOf(route) } : placeOf(route);
      const body = { ...(stored ? {} : { query: text }), ...which, params: given, ...place };
      const answer = await call<ReadResult | ChangeResult>("POST", graphPath(route.graph, path), body, aborter.signal);
      const seconds = (performance.now() - started) / 1000;
      if ("rows" in answer) setOutcome({ read: { ...answer, columns: answer.columns ?? [] }, seconds, text: stored ? "" : text });
      else {
        setOutcome({ change: answer, seconds });
        session.reloadBranches();
      }
      if (!stored) addPast(text);
      navigate({ params: { q: stored ? "" : text, p: textOf(values) } }, { replace: true });
    } catch (error) {
      if ((error as Error).name !== "AbortError") setOutcome({ error: asApiError(error) });
    } finally {
      setRunning(undefined);
    }
  };

  const open = (newText: string) => {
    setText(newText);
    setOutcome(undefined);
    navigate({ params: { q: newText, stored: "", name: "", p: "" } });
  };
  const mayWrite = session.permissions?.actions.change;
  const canRun = !mutates || (!!mayWrite && !at);

  return (
    <div class={library ? "query with-library" : "query"}>
      <section class="query-main" aria-label="Query">
        <div class="toolbar">
          {stored ? (
            <h1 class="toolbar-title">
              {stored} <Badge>stored query</Badge>
            </h1>
          ) : (
            <h1 class="toolbar-title">Query</h1>
          )}
          {(lint?.queries.length ?? 0) > 1 && !stored && (
            <select aria-label="Query to run" value={chosen?.name} onChange={(event) => navigate({ params: { name: event.currentTarget.value } }, { replace: true })}>
              {lint!.queries.map((item) => <option key={item.name}>{item.name}</option>)}
            </select>
          )}
          <span class="spacer" />
          <Button kind="quiet" aria-pressed={library} onClick={() => setLibrary(!library)}>Library</Button>
          {running ? (
            <Button kind="danger" onClick={() => running.abort()}>Stop</Button>
          ) : (
            <Button
              kind="primary"
              icon="play"
              id="run"
              disabled={!canRun || (!stored && !text.trim())}
              title={canRun ? "Ctrl Enter" : at ? "Go to now to write" : "The policy does not let you write here"}
              onClick={run}
            >
              {mutates ? `Commit to ${branchOf(route)}` : "Run"}
            </Button>
          )}
        </div>
        {stored ? (
          <div class="stored">
            <p>{chosenStored?.description ?? "The server runs this query by its name."}</p>
            {chosenStored?.instruction && <p class="muted">{chosenStored.instruction}</p>}
            {catalog.value && !chosenStored && <p role="alert">The server has no stored query of this name.</p>}
          </div>
        ) : (
          <Editor language="gq" label="Query text" value={text} types={types} onChange={edit} onRun={run} check={check} />
        )}
        <ParamsForm params={params} values={values} onChange={setValues} onRun={run} />
        <Result outcome={outcome} running={!!running} view={view} textView={text} params={() => readValues(params, values)} stored={stored} name={chosen?.name} />
      </section>
      {library && (
        <QueryLibrary
          catalog={catalog}
          stored={stored}
          saved={saved}
          past={past}
          text={stored ? "" : text}
          onSave={(item) => (save(item), notify(`Saved ${item.name} in this browser.`))}
          onRemove={remove}
          onOpen={open}
          onClear={() => (clearPast(), notify("History cleared."))}
          onStored={() => setOutcome(undefined)}
        />
      )}
    </div>
  );
}

interface ResultProps {
  outcome?: Outcome;
  running: boolean;
  view: string;
  textView: string;
  params: () => Record<string, unknown>;
  stored: string;
  name?: string;
}

function Result({ outcome, running, view, textView, params, stored, name }: ResultProps) {
  const { route } = useSession();
  if (running && !outcome) return <Loading what="Running" />;
  if (!outcome)
    return (
      <Empty title="Results appear here">
        Press <kbd>Ctrl</kbd> <kbd>Enter</kbd> to run the query.
      </Empty>
    );
  if ("error" in outcome) return <ErrorBox error={outcome.error} />;
  if ("change" in outcome) {
    const { change } = outcome;
    return (
      <div class="receipt" role="status">
        <h2>{change.commit ? "Committed" : "Nothing changed"}</h2>
        <p>
          {plural(change.affected_nodes, "node")} and {plural(change.affected_edges, "edge")} on {change.branch}, in {outcome.seconds.toFixed(2)} s.
        </p>
        {change.commit && (
          <a href={hrefOf(patchRoute(route, { page: "history", params: { commit: change.commit.graph_commit_id } }))}>
            Commit {shortId(change.commit.graph_commit_id)}
          </a>
        )}
      </div>
    );
  }
  const { read, seconds } = outcome;
  const columns = read.columns ?? [];
  return (
    <section class={running ? "result busy" : "result"} aria-label="Result">
      <div class="toolbar">
        <Tabs
          label="Views of the result"
          items={[{ id: "table", label: "Table" }, { id: "graph", label: "Graph" }, { id: "json", label: "JSON" }, ...(stored ? [] : [{ id: "plan", label: "Plan" }])]}
          chosen={view}
          onChoose={(id) => navigate({ params: { view: id } }, { replace: true })}
        />
        <span class="muted result-count" role="status">
          {formatCount(read.row_count)} {read.row_count === 1 ? "row" : "rows"} · {seconds.toFixed(2)} s
          {read.graph_commit_id && <> · <code>{shortId(read.graph_commit_id)}</code></>}
        </span>
        <span class="spacer" />
        <Button kind="quiet" onClick={() => download(`${read.query_name}.csv`, toCsv(columns, read.rows), "text/csv")}>CSV</Button>
        <Button kind="quiet" onClick={() => download(`${read.query_name}.ndjson`, read.rows.map((row) => `${writeJson(row)}\n`).join(""), "application/x-ndjson")}>NDJSON</Button>
        <Button kind="quiet" onClick={() => download(`${read.query_name}.json`, writeJson(read.rows, 2), "application/json")}>JSON</Button>
      </div>
      {view === "graph" ? (
        <ResultGraph read={read} text={outcome.text} />
      ) : view === "json" ? (
        <JsonView read={read} />
      ) : view === "plan" && !stored ? (
        <PlanView text={textView} params={params} name={name} />
      ) : read.rows.length ? (
        <DataTable columns={columns} rows={read.rows} label="Rows of the result" />
      ) : (
        <Empty title="No rows">The query ran and found nothing.</Empty>
      )}
    </section>
  );
}

const JSON_ROWS = 500;
function JsonView({ read }: { read: ReadResult }) {
  const text = useMemo(() => writeJson(read.rows.slice(0, JSON_ROWS), 2), [read]);
  return (
    <div class="json" tabIndex={0} role="region" aria-label="Rows as JSON">
      {read.rows.length > JSON_ROWS && <p class="muted">The first {JSON_ROWS} rows. The export has all of them.</p>}
      <pre>{text}</pre>
    </div>
  );
}

function PlanView({ text, params, name }: { text: string; params: () => Record<string, unknown>; name?: string }) {
  const { route } = useSession();
  const plan = useData(
    (signal) => call<{ plan: string }>("POST", graphPath(route.graph, "/explain"), { query: text, name, params: params(), ...placeOf(route) }, signal),
    [text, name, route.params.at, branchOf(route)],
  );
  return (
    <div class="json" tabIndex={0} role="region" aria-label="Plan">
      <ErrorBox error={plan.error} />
      {plan.value && <pre class="plan">{plan.value.plan}</pre>}
    </div>
  );
}
