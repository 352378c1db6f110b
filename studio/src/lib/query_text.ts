// Templates of queries that the Studio runs itself.
import type { NodeInfo, Types } from "./types";

/** The property that names a node best. */
export function labelProperty(node: NodeInfo | undefined): string | null {
  if (!node) return null;
  const texts = node.properties.filter((item) => item.kind === "string" && !item.type.startsWith("["));
  const preferred = ["name", "title", "label", "full_name", "headline"];
  const found = preferred.map((name) => texts.find((item) => item.name === name)).find(Boolean);
  return (found ?? texts.find((item) => node.key?.includes(item.name)) ?? texts[0])?.name ?? null;
}

const returned = (node: NodeInfo): string => {
  const plain = node.properties.filter((item) => !["vector", "blob"].includes(item.kind));
  return ["$n as __id", ...plain.map((item) => `$n.${item.name} as ${item.name}`)].join(", ");
};

/** A query for nodes of a type; with `text` for those that contain it. */
export function nodesQuery(node: NodeInfo, limit: number, text: boolean): string {
  const texts = node.properties.filter((item) => item.kind === "string" && !item.enum_values);
  const filter = text && texts.length ? `\n    ${texts.map((item) => `$n.${item.name} contains $text`).join(" or ")}` : "";
  return `query nodes(${filter ? "$text: String" : ""}) {\n  match {\n    $n: ${node.name}${filter}\n  }\n  return { ${returned(node)} }\n  limit ${limit}\n}`;
}

/** A query for the edges of a type, as pairs of ids. */
export function pairsQuery(types: Types, edge: string, limit: number): string {
  const found = types.edges.find((item) => item.name === edge)!;
  const word = edge[0].toLowerCase() + edge.slice(1);
  return `query pairs() {\n  match {\n    $a: ${found.source}\n    $a ${word} $b\n  }\n  return { $a as source, $b as target }\n  limit ${limit}\n}`;
}

/** A first query for a graph. */
export function sampleQuery(types: Types | undefined): string {
  const node = types?.nodes[0];
  if (!node) return "query all() {\n  match {\n    $n: Type\n  }\n  return { $n }\n  limit 100\n}\n";
  const variable = `$${node.name[0].toLowerCase()}`;
  const columns = node.properties.filter((item) => !["vector", "blob"].includes(item.kind)).slice(0, 6);
  const outputs = (columns.length ? columns.map((item) => `${variable}.${item.name}`) : [variable]).join(", ");
  return `query ${node.name.toLowerCase()}s() {\n  match {\n    ${variable}: ${node.name}\n  }\n  return { ${outputs} }\n  limit 100\n}\n`;
}
