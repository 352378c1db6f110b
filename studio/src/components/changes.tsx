// The changes between two states: counts by type, and each entity with its properties side by side.
import { useState } from "preact/hooks";
import { graphPath, get, readChanges } from "../lib/api";
import { useData, useSession } from "../lib/data";
import { formatCount, plural } from "../lib/format";
import { hrefOf, navigate, patchRoute } from "../lib/route";
import type { EntityChange, Image, Stats, Value } from "../lib/types";
import { Badge, Button, Empty, ErrorBox, Loading } from "./ui";
import { ValueText } from "./value";

const PAGE = 200;
const OPS = [
  { op: "insert", word: "added", tone: "add", sign: "+" },
  { op: "update", word: "changed", tone: "change", sign: "~" },
  { op: "delete", word: "removed", tone: "remove", sign: "−" },
] as const;

interface Props {
  before: string;
  after: string;
  /** The names of the two states, as titles of the columns. */
  names: [string, string];
}

/** The changes between two commits. The address keeps the type and the operation that are shown. */
export function Changes({ before, after, names }: Props) {
  const { route } = useSession();
  const { type = "", op = "" } = route.params;
  const [limit, setLimit] = useState(PAGE);
  const stats = useData(
    (signal) => get<{ stats: Stats }>(graphPath(route.graph, "/diff/stats"), { before, after }, signal),
    [route.graph, before, after],
  );
  const rows = useData(
    (signal) => readChanges(graphPath(route.graph, "/diff"), { before, after, type, op }, limit, signal),
    [route.graph, before, after, type, op, limit],
  );
  if (stats.error) return <ErrorBox error={stats.error} />;
  if (!stats.value) return <Loading what="Comparing" />;
  const counted = Object.entries(stats.value.stats).filter(([, counts]) => totalOf(counts) > 0);
  if (!counted.length) return <Empty title="No changes">Both states have the same rows.</Empty>;
  const choose = (newType: string, newOp: string) => {
    setLimit(PAGE);
    navigate({ params: { type: newType, op: newOp } }, { replace: true });
  };
  return (
    <div class="changes">
      <div class="change-summary" role="group" aria-label="Changes by type">
        <button type="button" aria-pressed={!type && !op} onClick={() => choose("", "")}>
          <strong>All</strong>
          <Counts counts={sumOf(counted.map(([, counts]) => counts))} />
        </button>
        {counted.map(([name, counts]) => (
          <button type="button" key={name} aria-pressed={type === name} onClick={() => choose(type === name && !op ? "" : name, "")}>
            <strong>{name}</strong>
            <Counts counts={counts} />
          </button>
        ))}
        <span class="spacer" />
        <label class="inline-field">
          <span class="muted">Show</span>
          <select value={op} onChange={(event) => choose(type, event.currentTarget.value)}>
            <option value="">every change</option>
            {OPS.map((item) => <option key={item.op} value={item.op}>{item.word}</option>)}
          </select>
        </label>
      </div>
      <ErrorBox error={rows.error} />
      {rows.value ? <ChangeList changes={rows.value.changes} names={names} /> : rows.loading && <Loading what="Reading" />}
      {rows.value?.changes.length === 0 && <Empty title="No such changes" />}
      {rows.value && !rows.value.complete && (
        <p class="row more">
          <span class="muted">The first {formatCount(limit)} changes.</span>
          <Button onClick={() => setLimit(limit * 4)} disabled={rows.loading}>Show more</Button>
        </p>
      )}
    </div>
  );
}

type OpCounts = Stats[string];
const totalOf = (counts: OpCounts): number => OPS.reduce((sum, { op }) => sum + (counts[op] ?? 0), 0);
const sumOf = (all: OpCounts[]): OpCounts =>
  Object.fromEntries(OPS.map(({ op }) => [op, all.reduce((sum, counts) => sum + (counts[op] ?? 0), 0)]));

export function Counts({ counts }: { counts: OpCounts }) {
  return (
    <span class="counts">
      {OPS.filter(({ op }) => counts[op]).map(({ op, word, tone, sign }) => (
        <span key={op} class={tone} title={`${counts[op]} ${word}`}>
          {sign}{formatCount(counts[op]!)}<span class="visually-hidden"> {word}</span>
        </span>
      ))}
    </span>
  );
}

export function ChangeList({ changes, names }: { changes: EntityChange[]; names: [string, string] }) {
  const groups = new Map<string, EntityChange[]>();
  for (const item of changes) groups.set(item.type.name, [...(groups.get(item.type.name) ?? []), item]);
  return (
    <>
      {[...groups].map(([type, items]) => (
        <section key={type} class="change-group" aria-label={type}>
          <h2>{type} <span class="muted small">{plural(items.length, "change")}</span></h2>
          {items.map((item) => <EntityChangeCard key={item.id} change={item} names={names} />)}
        </section>
      ))}
    </>
  );
}

/** One change, with its properties side by side. */
export function EntityChangeCard({ change, names }: { change: EntityChange; names: [string, string] }) {
  const { route } = useSession();
  const { op } = change;
  const { word, tone } = OPS.find((item) => item.op === op)!;
  const [all, setAll] = useState(false);
  const before = cellsOf(change.before);
  const after = cellsOf(change.after);
  const properties = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const changed = properties.filter((name) => !sameValue(before[name], after[name]));
  const shown = op === "update" && !all ? changed : properties.filter((name) => op === "update" || (before[name] ?? after[name] ?? null) !== null);
  return (
    <article class={`entity-change ${op}`} data-entity={change.id} data-op={op}>
      <header>
        <Badge tone={tone}>{word}</Badge>
        <a href={hrefOf(patchRoute(route, { page: "history", params: { view: "entity", type: change.type.name, id: change.id, op: "" } }))}>{titleOf(change)}</a>
        {op === "update" && properties.length > changed.length && (
          <Button kind="quiet" class="tiny" aria-expanded={all} onClick={() => setAll(!all)}>
            {all ? "Only changes" : `All ${properties.length} properties`}
          </Button>
        )}
      </header>
      {shown.length > 0 && (
        <table class="sides">
          <thead>
            <tr>
              <th scope="col">Property</th>
              {op !== "insert" && <th scope="col">{names[0]}</th>}
              {op !== "delete" && <th scope="col">{names[1]}</th>}
            </tr>
          </thead>
          <tbody>
            {shown.map((name) => {
              const differs = changed.includes(name);
              return (
                <tr key={name}>
                  <th scope="row">{name}</th>
                  {op !== "insert" && <td class={differs ? "old" : ""}><ValueText value={before[name]} /></td>}
                  {op !== "delete" && <td class={differs ? "new" : ""}><ValueText value={after[name]} /></td>}
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
    </article>
  );
}

function titleOf(change: EntityChange): string {
  const ends = (change.after ?? change.before)?.endpoints;
  return ends ? `${ends.from} → ${ends.to}` : change.id;
}

const cellsOf = (image: Image | null | undefined): Record<string, Value> =>
  image ? { ...(image.endpoints ? { from: image.endpoints.from, to: image.endpoints.to } : {}), ...image.properties } : {};

const sameValue = (a: Value | undefined, b: Value | undefined): boolean => {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || !a || !b) return false;
  return JSON.stringify(a, plain) === JSON.stringify(b, plain);
};
const plain = (_: string, value: unknown): unknown => (typeof value === "bigint" ? value.toString() : value);
