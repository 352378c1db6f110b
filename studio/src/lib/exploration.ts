// The nodes and edges of a picture, and the requests that add to it.
import { call, get, graphPath, placeOf } from "./api";
import { nodesQuery, pairsQuery } from "./query_text";
import type { Route } from "./route";
import type { Neighbors, ReadResult, Row, Types, Value } from "./types";

// More nodes than this are not readable, and slow to lay out.
export const MOST_NODES = 5000;

export interface PictureNode {
  key: string;
  type: string;
  id: string;
  properties: Row;
}
export interface PictureEdge {
  key: string;
  type: string;
  source: string;
  target: string;
}
export interface Picture {
  nodes: Map<string, PictureNode>;
  edges: Map<string, PictureEdge>;
}
export interface Start {
  type: string;
  text: string;
  limit: number;
  /** The id of the only node to start with. */
  id: string;
}

export const emptyPicture: Picture = { nodes: new Map(), edges: new Map() };
export const keyOf = (type: string, id: string): string => `${type}/${id}`;
export function splitKey(key: string): [string, string] {
  const place = key.indexOf("/");
  return [key.slice(0, place), key.slice(place + 1)];
}

/** Read the nodes to start with, and the edges between them. */
export async function readStart(route: Route, types: Types, start: Start, signal: AbortSignal): Promise<Picture> {
  const node = types.nodes.find((item) => item.name === start.type);
  if (!node) return emptyPicture;
  const nodes = new Map<string, PictureNode>();
  const add = (id: string, properties: Row) => nodes.set(keyOf(node.name, id), { key: keyOf(node.name, id), type: node.name, id, properties });
  if (start.id) {
    const { entity } = await get<{ entity: Row | null }>(graphPath(route.graph, "/entity"), { type: node.name, id: start.id, ...placeOf(route) }, signal);
    if (entity) {
      const { id: _, ...properties } = entity;
      add(start.id, properties);
    }
    return { nodes, edges: new Map() };
  }
  const run = (query: string, params: Record<string, Value>) =>
    call<ReadResult>("POST", graphPath(route.graph, "/query"), { query, params, ...placeOf(route) }, signal);
  const loops = types.edges.filter((item) => item.source === node.name && item.target === node.name);
  const [rows, ...pairs] = await Promise.all([
    run(nodesQuery(node, start.limit, !!start.text), start.text ? { text: start.text } : {}),
    ...loops.map((edge) => run(pairsQuery(types, edge.name, start.limit * 5), {})),
  ]);
  for (const { __id, ...properties } of rows.rows) add(String(__id), properties);
  const edges = new Map<string, PictureEdge>();
  pairs.forEach((read, place) => {
    const { name } = loops[place];
    for (const row of read.rows) addEdge(edges, nodes, name, keyOf(node.name, String(row.source)), keyOf(node.name, String(row.target)));
  });
  return { nodes, edges };
}

/** Read the neighbors of a node: at most `limit` for each type of edges, or for one type and direction. */
export function readNeighbors(route: Route, key: string, limit: number, along?: { edge: string; direction: string }, signal?: AbortSignal): Promise<Neighbors> {
  const [type, id] = splitKey(key);
  return get<Neighbors>(graphPath(route.graph, "/neighbors"), { type, id, limit, ...along, ...placeOf(route) }, signal);
}

/** A picture with the neighbors of a node, and how many nodes it had no room for. */
export function withNeighbors(picture: Picture, found: Neighbors): { picture: Picture; left: number } {
  const nodes = new Map(picture.nodes);
  const edges = new Map(picture.edges);
  const from = keyOf(found.type, found.id);
  let left = 0;
  for (const { edge, node } of found.neighbors) {
    const key = keyOf(node.type, node.id);
    if (!nodes.has(key)) {
      if (nodes.size >= MOST_NODES) {
        left += 1;
        continue;
      }
      nodes.set(key, { key, type: node.type, id: node.id, properties: node.properties });
    }
    addEdge(edges, nodes, edge.type, edge.direction === "out" ? from : key, edge.direction === "out" ? key : from);
  }
  return { picture: { nodes, edges }, left };
}

function addEdge(edges: Map<string, PictureEdge>, nodes: Map<string, PictureNode>, type: string, source: string, target: string): void {
  if (!nodes.has(source) || !nodes.has(target)) return;
  // Parallel edges are drawn as one.
  const key = `${type}:${source}>${target}`;
  edges.set(key, { key, type, source, target });
}
