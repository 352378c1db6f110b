// The steps of a migration plan. A step that the engine rejects says why.
import { formatValue } from "../lib/format";
import type { Value } from "../lib/types";
import { Badge } from "./ui";

export type Step = Record<string, Value>;

export function MigrationSteps({ steps }: { steps: Step[] }) {
  if (!steps.length) return <p role="status">No changes.</p>;
  return (
    <ol class="steps" aria-label="Steps">
      {steps.map((step, number) => {
        const { kind, ...rest } = step;
        const rejected = String(kind).includes("unsupported") || "reason" in step;
        return (
          <li key={number}>
            <Badge tone={rejected ? "remove" : "add"}>{rejected ? "rejected" : "ok"}</Badge> <strong>{words(String(kind ?? step.step ?? "step"))}</strong>
            <dl>
              {Object.entries(rest)
                .filter(([, value]) => value !== null && value !== undefined)
                .map(([name, value]) => (
                  <div key={name}>
                    <dt>{words(name)}</dt>
                    <dd>{formatValue(value)}</dd>
                  </div>
                ))}
            </dl>
          </li>
        );
      })}
    </ol>
  );
}

const words = (name: string): string => name.replaceAll("_", " ");
