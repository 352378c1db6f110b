// One value: a text, a number, or the properties of an entity.
import { formatValue } from "../lib/format";
import type { Value } from "../lib/types";

const LONGEST = 600;

export function ValueText({ value, none = "null" }: { value: Value | undefined; none?: string }) {
  if (value === null || value === undefined) return <span class="null">{none}</span>;
  if (typeof value === "object" && !Array.isArray(value)) return <Properties values={value} />;
  const text = formatValue(value);
  return (
    <span class="value" title={text.length > LONGEST ? text : undefined}>
      {text === "" ? <span class="null">empty text</span> : text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text}
    </span>
  );
}

function Properties({ values }: { values: Record<string, Value> }) {
  return (
    <dl class="properties">
      {Object.entries(values).map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value === null ? <span class="null">null</span> : formatValue(value)}</dd>
        </div>
      ))}
    </dl>
  );
}
