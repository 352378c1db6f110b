// The rows of a query as a graph: the variables that it returns are nodes, its traversals are edges.
import { useMemo } from "preact/hooks";
import { useSession } from "../lib/data";
import { edgesOf, variableTypes } from "../lib/languages";
import type { ReadResult, Types } from "../lib/types";
import { GraphView, type ViewEdge, type ViewNode } from "./graph_view";
import { Empty } from "./ui";

const MAX_NODES = 2000;

export function ResultGraph({ read, text }: { read: ReadResult; text: string }) {
  const { types } = useSession();
  const found = useMemo(() => (types ? graphOf(read, text, types) : { nodes: [], edges: [] }), [read, text, types]);
  if (!found.nodes.length)
    return (
      <Empty title="No nodes to show">
        Return variables, such as <code>{"return { $a, $b }"}</code>, to see them as nodes with the edges that the query follows.
      </Empty>
    );
  return (
    <GraphView
      nodes={found.nodes}
      edges={found.edges}
      types={types!.nodes.map((item) => item.name)}
      label="Result"
    />
  );
}

function graphOf(read: ReadResult, text: string, types: Types): { nodes: ViewNode[]; edges: ViewEdge[] } {
  const variables = variableTypes(text, types);
  const isNode = new Set(types.nodes.map((item) => item.name));
  const output = text.slice(Math.max(0, text.search(/\breturn\b/)));
  const columns = new Map<string, string>();
  // `$p` or `$p as name`, but not `$p.name` or an argument of a function.
  for (const [, variable, alias] of output.matchAll(/(?<![\w(.]\s*)\$(\w+)(?![\w.])(?:\s+as\s+(\w+))?/g)) {
    const column = alias ?? variable;
    if ((read.columns ?? []).includes(column) && isNode.has(variables.get(variable) ?? "")) columns.set(variable, column);
  }
  const links = edgesOf(text).filter(([, left, right]) => columns.has(left) && columns.has(right));
  const nodes = new Map<string, ViewNode>();
  const edges = new Map<string, ViewEdge>();
  for (const row of read.rows) {
    for (const [variable, column] of columns) {
      const id = row[column];
      if (typeof id !== "string" || nodes.size >= MAX_NODES) continue;
      const type = variables.get(variable)!;
      nodes.set(`${type}/${id}`, { key: `${type}/${id}`, type, label: id });
    }
    for (const [, left, right, , name] of links) {
      const [source, target] = [left, right].map((item) => `${variables.get(item)}/${row[columns.get(item)!]}`);
      if (!nodes.has(source) || !nodes.has(target)) continue;
      const edge = types.edges.find((item) => item.name.toLowerCase() === name.toLowerCase());
      const flipped = edge && edge.source !== edge.target && variables.get(left) === edge.target;
      const key = flipped ? `${name}:${target}>${source}` : `${name}:${source}>${target}`;
      edges.set(key, { key, source: flipped ? target : source, target: flipped ? source : target, type: name });
    }
  }
  return { nodes: [...nodes.values()], edges: [...edges.values()] };
}
