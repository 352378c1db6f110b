// Merge conflicts with base, ours and theirs. Each is settled by itself, or many by one rule.
import { useState } from "preact/hooks";
import { useSession } from "../lib/data";
import { plural } from "../lib/format";
import type { Conflict, Types, Value } from "../lib/types";
import { Badge, Button } from "./ui";
import { ValueText } from "./value";

/** `value` is the text that the user typed. */
export type Choice = { side: "ours" | "theirs" } | { side: "value"; value: string };
export type Choices = Record<string, Choice>;
export type Resolution = Record<string, "ours" | "theirs" | { value: Value }>;

interface Props {
  conflicts: Conflict[];
  choices: Choices;
  onChange: (choices: Choices) => void;
  /** The names of the sides: what ours and theirs are. */
  ours: string;
  theirs: string;
}

const KINDS: Record<string, string> = {
  divergent_insert: "added on both sides",
  divergent_update: "changed on both sides",
  delete_vs_update: "removed on one side, changed on the other",
  orphan_edge: "edge of a removed node",
  unique_violation: "same unique value",
  cardinality_violation: "number of edges",
  value_constraint_violation: "constraint",
  schema_conflict: "schema",
};

export function Conflicts({ conflicts, choices, onChange, ours, theirs }: Props) {
  const [scope, setScope] = useState("");
  const open = conflicts.filter((item) => !(item.id in choices)).length;
  const scopes = [...new Set(conflicts.flatMap((item) => [item.type_name, ...(item.property ? [`${item.type_name}.${item.property}`] : [])]))].sort();
  const inScope = conflicts.filter((item) => !scope || scope === item.type_name || scope === `${item.type_name}.${item.property}`);
  const settle = (side: "ours" | "theirs") => onChange({ ...choices, ...Object.fromEntries(inScope.map((item) => [item.id, { side }])) });
  return (
    <div class="conflicts">
      <div class="conflict-rules" role="group" aria-label="Settle many conflicts">
        <span role="status">{open ? `${plural(open, "conflict")} to settle` : `${plural(conflicts.length, "conflict")} settled`}</span>
        <span class="spacer" />
        <select aria-label="Conflicts that a rule settles" value={scope} onChange={(event) => setScope(event.currentTarget.value)}>
          <option value="">All {conflicts.length}</option>
          {scopes.map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
        <Button data-rule="ours" onClick={() => settle("ours")}>Keep {ours}</Button>
        <Button data-rule="theirs" onClick={() => settle("theirs")}>Take {theirs}</Button>
        <Button kind="quiet" disabled={open === conflicts.length} onClick={() => onChange({})}>Clear</Button>
      </div>
      {conflicts.map((item) => (
        <ConflictCard key={item.id} conflict={item} choice={choices[item.id]} ours={ours} theirs={theirs} onChange={(choice) => onChange({ ...choices, [item.id]: choice })} />
      ))}
    </div>
  );
}

interface CardProps {
  conflict: Conflict;
  choice?: Choice;
  ours: string;
  theirs: string;
  onChange: (choice: Choice) => void;
}

function ConflictCard({ conflict, choice, ours, theirs, onChange }: CardProps) {
  const { types } = useSession();
  const name = [conflict.entity_id, conflict.property].filter(Boolean).join(" · ");
  const mayType = takesValue(conflict);
  const typed = choice?.side === "value" ? choice.value : "";
  const problem = choice?.side === "value" ? problemOf(conflict, choice.value, types) : undefined;
  return (
    <fieldset class={choice ? "conflict settled" : "conflict"} data-conflict={conflict.entity_id ?? conflict.type_name}>
      <legend>
        <span class="muted">{conflict.type_name}</span> <strong>{name || conflict.type_name}</strong> <Badge tone="change">{KINDS[conflict.kind] ?? conflict.kind}</Badge>
      </legend>
      {conflict.kind !== "divergent_update" && <p class="muted">{conflict.message}</p>}
      <div class="conflict-sides">
        <div class="side-value">
          <span class="side-name">Before both</span>
          <ValueText value={conflict.base} none="nothing" />
        </div>
        {(["ours", "theirs"] as const).map((side) => (
          <label key={side} class="side-value pick" data-side={side}>
            <span class="side-name">
              <input type="radio" name={conflict.id} checked={choice?.side === side} onChange={() => onChange({ side })} />
              {side === "ours" ? ours : theirs}
            </span>
            <ValueText value={conflict[side]} none="nothing" />
          </label>
        ))}
        {mayType && (
          <label class="side-value pick" data-side="value">
            <span class="side-name">
              <input
                type="radio"
                name={conflict.id}
                aria-label="Another value"
                checked={choice?.side === "value"}
                onChange={() => onChange({ side: "value", value: typed })}
              />
              Another value
            </span>
            <input
              aria-label={`Value for ${name}`}
              aria-invalid={!!problem}
              value={typed}
              onInput={(event) => onChange({ side: "value", value: event.currentTarget.value })}
            />
            {problem && <span class="field-problem" role="alert">{problem}</span>}
          </label>
        )}
      </div>
    </fieldset>
  );
}

/** Whether a conflict can be settled with a value of neither side. */
const takesValue = (conflict: Conflict): boolean =>
  !!conflict.property && ["divergent_update", "divergent_insert"].includes(conflict.kind) && !["from", "to"].includes(conflict.property);

/** The resolution of the conflicts that have a choice, and whether every conflict has a valid one. */
export function resolutionOf(conflicts: Conflict[], choices: Choices, types?: Types): { resolve: Resolution; complete: boolean } {
  const resolve: Resolution = {};
  for (const item of conflicts) {
    const choice = choices[item.id];
    if (!choice) continue;
    if (choice.side !== "value") resolve[item.id] = choice.side;
    else if (!problemOf(item, choice.value, types)) resolve[item.id] = { value: readTyped(item, choice.value, types) };
  }
  return { resolve, complete: conflicts.every((item) => item.id in resolve) };
}

function problemOf(conflict: Conflict, text: string, types?: Types): string | undefined {
  try {
    readTyped(conflict, text, types);
    return undefined;
  } catch {
    return text.trim() ? "Expected a JSON value, such as 12 or [1, 2]." : "Enter a value.";
  }
}

function readTyped(conflict: Conflict, text: string, types?: Types): Value {
  const entity = [...(types?.nodes ?? []), ...(types?.edges ?? [])].find((item) => item.name === conflict.type_name);
  const property = entity?.properties.find((item) => item.name === conflict.property);
  const isText = property ? ["string", "date", "datetime"].includes(property.kind) : [conflict.ours, conflict.theirs].some((value) => typeof value === "string");
  if (isText) return text;
  if (/^-?\d{16,}$/.test(text.trim())) return BigInt(text.trim());
  return JSON.parse(text) as Value;
}
