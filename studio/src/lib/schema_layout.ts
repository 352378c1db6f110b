// Places of node types in layers, so that most edges point to the right.
import type { Types } from "./types";

export interface Card {
  name: string;
  x: number;
  y: number;
}
export interface Line {
  name: string;
  path: string;
  x: number;
  y: number;
}
export interface Drawing {
  cards: Card[];
  lines: Line[];
  width: number;
  height: number;
}

export const CARD = { width: 168, height: 58 };
const GAP = { x: 116, y: 54, top: 14 };

export function layOut(types: Types): Drawing {
  const names = types.nodes.map((item) => item.name);
  const layer = layersOf(names, types.edges.filter((item) => item.source !== item.target));
  const columns: string[][] = [];
  for (const name of names) (columns[layer.get(name)!] ??= []).push(name);
  // Unconnected types would make the first column endless.
  const lone = names.filter((name) => !types.edges.some((item) => item.source === name || item.target === name));
  if (lone.length > 4 && lone.length < names.length) {
    columns[0] = columns[0].filter((name) => !lone.includes(name));
    for (let place = 0; place < lone.length; place += 6) columns.push(lone.slice(place, place + 6));
  }
  const filled = columns.filter((column) => column?.length);
  // An edge over several columns has a place of its own in each column between, so that it passes no card.
  const links = types.edges.flatMap((edge) => {
    const [from, to] = [layer.get(edge.source)!, layer.get(edge.target)!];
    const places: string[] = [];
    for (let column = Math.min(from, to) + 1; column < Math.max(from, to); column += 1) {
      places.push(`${edge.name}\n${column}`);
      filled[column]?.push(`${edge.name}\n${column}`);
    }
    const ends = from < to ? [edge.source, ...places, edge.target] : [edge.target, ...places, edge.source];
    return ends.slice(1).map((name, place) => [ends[place], name] as const);
  });
  order(filled, links);
  const tallest = Math.max(1, ...filled.map((column) => column.length));
  const height = tallest * (CARD.height + GAP.y) + GAP.y;
  const cards = new Map<string, Card>();
  filled.forEach((column, place) => {
    const step = height / column.length;
    column.forEach((name, row) =>
      cards.set(name, { name, x: GAP.x / 2 + place * (CARD.width + GAP.x), y: GAP.top + (row + 0.5) * step - CARD.height / 2 }));
  });
  const width = filled.length * (CARD.width + GAP.x);
  const lines = linesOf(types, cards);
  return { cards: [...cards.values()].filter((item) => !item.name.includes("\n")), lines, width, height: height + GAP.top };
}

function layersOf(names: string[], edges: { source: string; target: string }[]): Map<string, number> {
  const layer = new Map<string, number>();
  const open = new Set<string>();
  const visit = (name: string): number => {
    const known = layer.get(name);
    if (known !== undefined) return known;
    open.add(name);
    // An edge back to a type that is being visited closes a cycle, and does not count.
    const before = edges.filter((item) => item.target === name && !open.has(item.source)).map((item) => visit(item.source) + 1);
    open.delete(name);
    const found = Math.max(0, ...before);
    layer.set(name, found);
    return found;
  };
  names.forEach(visit);
  return layer;
}

/** Order each column by the mean place of the neighbours, so that fewer lines cross. */
function order(columns: string[][], links: (readonly [string, string])[]): void {
  for (let round = 0; round < 8; round += 1) {
    const place = new Map<string, number>();
    columns.forEach((column) => column.forEach((name, row) => place.set(name, (row + 0.5) / column.length)));
    for (const column of columns) {
      const weight = new Map(
        column.map((name) => {
          const near = links.flatMap(([a, b]) => (a === name && b !== name ? [b] : b === name && a !== name ? [a] : []));
          return [name, near.length ? near.reduce((sum, item) => sum + (place.get(item) ?? 0.5), 0) / near.length : place.get(name)!];
        }),
      );
      column.sort((a, b) => weight.get(a)! - weight.get(b)! || (a < b ? -1 : 1));
    }
  }
}

function linesOf(types: Types, cards: Map<string, Card>): Line[] {
  const groups = new Map<string, number>();
  return types.edges.flatMap((edge) => {
    const from = cards.get(edge.source);
    const to = cards.get(edge.target);
    if (!from || !to) return [];
    const pair = [edge.source, edge.target].sort().join("\n");
    const number = groups.get(pair) ?? 0;
    groups.set(pair, number + 1);
    const bend = (number % 2 ? 1 : -1) * Math.ceil(number / 2) * 34;
    if (from === to) {
      const x = from.x + CARD.width / 2;
      const rise = 34 + number * 22;
      return [{
        name: edge.name,
        path: `M${x - 26} ${from.y} C${x - 40} ${from.y - rise} ${x + 40} ${from.y - rise} ${x + 26} ${from.y - 3}`,
        x, y: from.y - rise * 0.76,
      }];
    }
    const rightwards = to.x > from.x;
    const level = to.x === from.x;
    const start = { x: from.x + (rightwards || level ? CARD.width : 0), y: from.y + CARD.height / 2 };
    const end = { x: to.x + (rightwards ? -4 : CARD.width + 4), y: to.y + CARD.height / 2 };
    const reach = level ? 70 : Math.abs(end.x - start.x) / 2;
    const side = rightwards || level ? 1 : -1;
    const c1 = { x: start.x + side * reach, y: start.y + bend };
    const c2 = { x: end.x + (level ? reach : -side * reach), y: end.y + bend };
    const between = [...cards.values()].filter((item) => item.name.startsWith(`${edge.name}\n`)).sort((a, b) => side * (a.x - b.x));
    if (between.length) {
      const stops = [start, ...between.map((item) => ({ x: item.x + CARD.width / 2, y: item.y + CARD.height / 2 })), end];
      const curves = stops.slice(1).map((stop, place) => {
        const middle = (stops[place].x + stop.x) / 2;
        return `C${middle} ${stops[place].y} ${middle} ${stop.y} ${stop.x} ${stop.y}`;
      });
      const label = stops[Math.floor(stops.length / 2)];
      return [{ name: edge.name, path: `M${start.x} ${start.y} ${curves.join(" ")}`, x: label.x, y: label.y }];
    }
    return [{
      name: edge.name,
      path: `M${start.x} ${start.y} C${c1.x} ${c1.y} ${c2.x} ${c2.y} ${end.x} ${end.y}`,
      x: (start.x + 3 * c1.x + 3 * c2.x + end.x) / 8,
      y: (start.y + 3 * c1.y + 3 * c2.y + end.y) / 8,
    }];
  });
}
