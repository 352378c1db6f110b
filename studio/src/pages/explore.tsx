// Start from a type or a search, and follow the edges of nodes.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { GraphView, type GraphControl } from "../components/graph_view";
import { NodePanel } from "../components/node_panel";
import { DataTable } from "../components/table";
import { labelOf, TypeStylesPanel, useTypeStyles } from "../components/type_styles";
import { Button, Empty, ErrorBox, Loading, Tabs } from "../components/ui";
import type { ApiError } from "../lib/api";
import { asApiError, useSession } from "../lib/data";
import { emptyPicture, keyOf, MOST_NODES, readNeighbors, readStart, withNeighbors, type Picture } from "../lib/exploration";
import { formatCount, plural } from "../lib/format";
import { branchOf, navigate } from "../lib/route";
import type { Row, Types } from "../lib/types";

const LIMITS = [50, 200, 500, 2000];
// Neighbors of each type of edges that one click adds.
const STEP = 25;
const SEPARATOR = "|";
const LISTED = 60;

export function ExplorePage() {
  const { route, types, notify } = useSession();
  const { params } = route;
  const type = params.type || (types ? centralType(types) : "");
  const { text = "", id = "", chosen = "", view = "graph" } = params;
  const limit = Number(params.limit) || LIMITS[0];
  const [picture, setPicture] = useState<Picture>(emptyPicture);
  const [pinned, setPinned] = useState<ReadonlySet<string>>(new Set());
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [loading, setLoading] = useState(true);
  const [error, setError] = useState<ApiError>();
  const [styles, setStyle] = useTypeStyles(route.graph);
  const control = useRef<GraphControl>(null);
  const newest = useRef(picture);
  const show = (next: Picture) => {
    newest.current = next;
    setPicture(next);
  };

  // The address names what to start with and which nodes were expanded, so that a link shows the same picture.
  useEffect(() => {
    if (!types) return;
    const aborter = new AbortController();
    setLoading(true);
    setError(undefined);
    setHidden(new Set());
    void (async () => {
      try {
        let next = await readStart(route, types, { type, text, limit, id }, aborter.signal);
        for (const key of (params.x ?? "").split(SEPARATOR).filter((item) => next.nodes.has(item)))
          next = withNeighbors(next, await readNeighbors(route, key, STEP, undefined, aborter.signal)).picture;
        if (!aborter.signal.aborted) show(next);
      } catch (problem) {
        if (!aborter.signal.aborted) setError(asApiError(problem));
      } finally {
        if (!aborter.signal.aborted) setLoading(false);
      }
    })();
    return () => aborter.abort();
  }, [types, route.graph, branchOf(route), params.at, type, text, limit, id]);

  const expand = async (key: string, along?: { edge: string; direction: "out" | "in" }) => {
    try {
      const asked = along ? shownOf(key, along.edge, along.direction) + STEP : STEP;
      const { picture: next, left } = withNeighbors(newest.current, await readNeighbors(route, key, asked, along));
      show(next);
      const expanded = (params.x ?? "").split(SEPARATOR).filter(Boolean);
      if (!expanded.includes(key)) navigate({ params: { x: [...expanded, key].join(SEPARATOR) } }, { replace: true });
      if (left) notify(`The picture has ${formatCount(MOST_NODES)} nodes, ${plural(left, "more node")} did not fit.`);
    } catch (problem) {
      notify(asApiError(problem).message, "error");
    }
  };
  const shownOf = (key: string, edge: string, direction: "out" | "in"): number => {
    let count = 0;
    for (const item of newest.current.edges.values())
      if (item.type === edge && (direction === "out" ? item.source : item.target) === key) count += 1;
    return count;
  };
  const choose = (key?: string) => navigate({ params: { chosen: key ?? "" } }, { replace: true });
  const toggle = (set: ReadonlySet<string>, key: string): Set<string> => {
    const next = new Set(set);
    if (!next.delete(key)) next.add(key);
    return next;
  };
  const hide = (key: string) => {
    setHidden(toggle(hidden, key));
    choose();
  };

  const visible = useMemo(
    () => [...picture.nodes.values()].filter((item) => !hidden.has(item.key) && !styles[item.type]?.hidden),
    [picture, hidden, styles],
  );
  const nodes = useMemo(
    () =>
      types
        ? visible.map((item) => ({ key: item.key, type: item.type, label: labelOf(types, styles, item), colour: styles[item.type]?.colour, pinned: pinned.has(item.key) }))
        : [],
    [visible, styles, pinned, types],
  );
  const edges = useMemo(() => [...picture.edges.values()], [picture]);
  const counts = useMemo(() => {
    const found = new Map<string, number>();
    for (const item of picture.nodes.values()) found.set(item.type, (found.get(item.type) ?? 0) + 1);
    return found;
  }, [picture]);
  const node = picture.nodes.get(chosen);
  useKeys(node && { e: () => void expand(node.key), p: () => setPinned(toggle(pinned, node.key)), x: () => hide(node.key), Escape: () => choose() });

  if (!types) return <Loading />;
  if (!types.nodes.length) return <Empty title="The schema has no node types." />;
  return (
    <div class="explore">
      <StartForm key={`${type}/${text}/${limit}/${id}`} type={type} text={text} limit={limit} />
      <ErrorBox error={error} />
      <div class="explore-split">
        <section class="explore-picture" aria-label="Picture" aria-busy={loading}>
          <div class="row">
            <Tabs label="Views of the nodes" items={[{ id: "graph", label: "Graph" }, { id: "table", label: "Table" }]} chosen={view} onChoose={(item) => navigate({ params: { view: item } }, { replace: true })} />
            <span class="muted" role="status">
              {loading ? "Loading…" : `${plural(visible.length, "node")}, ${plural(edges.length, "edge")}`}
            </span>
            <span class="spacer" />
            {hidden.size > 0 && <Button kind="quiet" id="show-hidden" onClick={() => setHidden(new Set())}>Show {hidden.size} hidden</Button>}
          </div>
          {!loading && !visible.length ? (
            <Empty title="Nothing to show">{text ? `No ${type} contains “${text}”.` : id ? `There is no ${type} ${id}.` : `There are no nodes of ${type}.`}</Empty>
          ) : view === "table" ? (
            <NodeTable rows={visible.map((item) => ({ type: item.type, id: item.id, ...item.properties }))} onOpen={choose} />
          ) : (
            <GraphView
              nodes={nodes}
              edges={edges}
              types={types.nodes.map((item) => item.name)}
              chosen={chosen}
              onChoose={choose}
              onExpand={(key) => void expand(key)}
              onPin={(key) => setPinned(new Set([...pinned, key]))}
              control={control}
              label="Nodes and edges"
            />
          )}
        </section>
        <aside class="explore-side card" aria-label="Details">
          {node ? (
            <NodePanel
              key={node.key}
              node={node}
              label={labelOf(types, styles, node)}
              pinned={pinned.has(node.key)}
              shownOf={(edge, direction) => shownOf(node.key, edge, direction)}
              onExpand={(along) => void expand(node.key, along)}
              onPin={() => setPinned(toggle(pinned, node.key))}
              onHide={() => hide(node.key)}
            />
          ) : (
            <>
              <TypeStylesPanel types={types} styles={styles} counts={counts} onChange={setStyle} />
              <NodeList nodes={nodes} onChoose={(key) => (choose(key), control.current?.centre(key))} />
            </>
          )}
          {node && <Button kind="quiet" onClick={() => choose()}>Back to types and nodes</Button>}
        </aside>
      </div>
    </div>
  );
}

/** The node type with the most types of edges. */
function centralType(types: Types): string {
  const degree = (name: string) => types.edges.filter((item) => item.source === name || item.target === name).length;
  return [...types.nodes].sort((a, b) => degree(b.name) - degree(a.name))[0]?.name ?? "";
}

function StartForm(start: { type: string; text: string; limit: number }) {
  const { types } = useSession();
  const [type, setType] = useState(start.type);
  const [text, setText] = useState(start.text);
  const go = (patch: { type?: string; limit?: string } = {}) =>
    navigate({ params: { type, text: text.trim(), limit: String(start.limit), id: "", x: "", chosen: "", ...patch } });
  return (
    <form
      class="toolbar"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        go();
      }}
    >
      <h1 class="toolbar-title">Explore</h1>
      <select aria-label="Type to start with" value={type} onChange={(event) => (setType(event.currentTarget.value), go({ type: event.currentTarget.value }))}>
        {types!.nodes.map((item) => <option key={item.name}>{item.name}</option>)}
      </select>
      <input class="explore-search" type="search" aria-label="Text to search for" placeholder="Search its texts" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      <select aria-label="Most nodes to start with" value={start.limit} onChange={(event) => go({ limit: event.currentTarget.value })}>
        {LIMITS.map((item) => <option key={item} value={item}>{formatCount(item)} nodes</option>)}
      </select>
      <Button kind="primary" type="submit" icon="search">Show</Button>
    </form>
  );
}

function NodeTable({ rows, onOpen }: { rows: Row[]; onOpen: (key: string) => void }) {
  const columns = useMemo(() => [...new Set(rows.flatMap((row) => Object.keys(row)))], [rows]);
  return <DataTable columns={columns} rows={rows} label="Nodes" onOpen={(row) => onOpen(keyOf(String(row.type), String(row.id)))} />;
}

/** The nodes as a list, which reaches them without a pointer. */
function NodeList({ nodes, onChoose }: { nodes: { key: string; type: string; label: string }[]; onChoose: (key: string) => void }) {
  const [text, setText] = useState("");
  const found = nodes.filter((item) => item.label.toLowerCase().includes(text.toLowerCase()));
  return (
    <section aria-label="Nodes" class="node-list">
      <h2>Nodes</h2>
      <input type="search" aria-label="Find a node in the picture" placeholder="Find in the picture" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      <ul class="list">
        {found.slice(0, LISTED).map((item) => (
          <li key={item.key}>
            <button type="button" data-node={item.key} onClick={() => onChoose(item.key)}>
              {item.label} <span class="muted">{item.type}</span>
            </button>
          </li>
        ))}
      </ul>
      {found.length > LISTED && <p class="muted">{plural(found.length - LISTED, "more node")}</p>}
    </section>
  );
}

function useKeys(actions: Record<string, () => void> | undefined): void {
  const newest = useRef(actions);
  newest.current = actions;
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog, [contenteditable=true]")) return;
      newest.current?.[event.key]?.();
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, []);
}
