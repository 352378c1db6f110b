// How the nodes of each type look: colour, label and whether they are shown. The choices stay in this browser.
import { useState } from "preact/hooks";
import { colourOf } from "../lib/colours";
import { formatCount } from "../lib/format";
import { labelProperty } from "../lib/query_text";
import type { Types } from "../lib/types";

export interface TypeStyle {
  colour?: string;
  label?: string;
  hidden?: boolean;
}
export type TypeStyles = Record<string, TypeStyle>;

export function useTypeStyles(graph: string): [TypeStyles, (type: string, patch: TypeStyle) => void] {
  const key = `omnigraph-styles-${graph}`;
  const [styles, setStyles] = useState<TypeStyles>(() => {
    try {
      return JSON.parse(localStorage.getItem(key) ?? "{}") as TypeStyles;
    } catch {
      return {};
    }
  });
  return [
    styles,
    (type, patch) => {
      const next = { ...styles, [type]: { ...styles[type], ...patch } };
      setStyles(next);
      localStorage.setItem(key, JSON.stringify(next));
    },
  ];
}

/** The text of a node: the chosen property, or the one that names it best. */
export function labelOf(types: Types, styles: TypeStyles, node: { type: string; id: string; properties: Record<string, unknown> }): string {
  const name = styles[node.type]?.label ?? labelProperty(types.nodes.find((item) => item.name === node.type));
  const value = name ? node.properties[name] : undefined;
  return value === null || value === undefined || value === "" ? node.id : String(value).slice(0, 60);
}

interface Props {
  types: Types;
  styles: TypeStyles;
  counts: Map<string, number>;
  onChange: (type: string, patch: TypeStyle) => void;
}

export function TypeStylesPanel({ types, styles, counts, onChange }: Props) {
  const names = types.nodes.map((item) => item.name);
  return (
    <section aria-label="Types" class="type-styles">
      <h2>Types</h2>
      <ul>
        {types.nodes.filter((item) => counts.has(item.name)).map((item) => {
          const style = styles[item.name] ?? {};
          return (
            <li key={item.name}>
              <input
                type="color"
                aria-label={`Colour of ${item.name}`}
                value={style.colour ?? colourOf(item.name, names)}
                onChange={(event) => onChange(item.name, { colour: event.currentTarget.value })}
              />
              <label class="check">
                <input type="checkbox" checked={!style.hidden} onChange={(event) => onChange(item.name, { hidden: !event.currentTarget.checked })} />
                {item.name} <span class="muted">{formatCount(counts.get(item.name)!)}</span>
              </label>
              <select
                aria-label={`Label of ${item.name}`}
                value={style.label ?? labelProperty(item) ?? ""}
                onChange={(event) => onChange(item.name, { label: event.currentTarget.value })}
              >
                <option value="">id</option>
                {item.properties.filter((property) => !["vector", "blob", "list"].includes(property.kind)).map((property) => <option key={property.name}>{property.name}</option>)}
              </select>
            </li>
          );
        })}
      </ul>
    </section>
  );
}
