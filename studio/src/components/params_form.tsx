// A form for the parameters of a query. The values are JSON values of the declared kinds.
import type { Param, Value } from "../lib/types";
import { writeJson } from "../lib/api";

export type Values = Record<string, string>;

interface Props {
  params: Param[];
  values: Values;
  onChange: (values: Values) => void;
  onRun: () => void;
}

export function ParamsForm({ params, values, onChange, onRun }: Props) {
  if (!params.length) return null;
  return (
    <form
      class="params"
      aria-label="Parameters"
      onSubmit={(event) => {
        event.preventDefault();
        onRun();
      }}
    >
      {params.map((param) => (
        <label class="field" key={param.name}>
          <span class="field-label">
            ${param.name} <span class="muted">{kindText(param)}</span>
          </span>
          {param.kind === "bool" ? (
            <select value={values[param.name] ?? ""} onChange={(event) => onChange({ ...values, [param.name]: event.currentTarget.value })}>
              <option value="">{param.nullable ? "null" : "choose"}</option>
              <option>true</option>
              <option>false</option>
            </select>
          ) : (
            <input
              value={values[param.name] ?? ""}
              inputMode={["int", "bigint"].includes(param.kind) ? "numeric" : "text"}
              placeholder={placeholderOf(param)}
              onInput={(event) => onChange({ ...values, [param.name]: event.currentTarget.value })}
            />
          )}
        </label>
      ))}
      <button type="submit" hidden />
    </form>
  );
}

const kindText = (param: Param): string =>
  `${param.kind === "list" ? `list of ${param.item_kind}` : param.kind === "vector" ? `vector of ${param.vector_dim}` : param.kind}${param.nullable ? ", optional" : ""}`;

function placeholderOf(param: Param): string {
  if (param.kind === "list") return '["a", "b"]';
  if (param.kind === "vector") return "[0.1, 0.2, …]";
  if (param.kind === "date") return "2026-05-04";
  if (param.kind === "datetime") return "2026-05-04T12:00:00Z";
  return param.nullable ? "null" : "";
}

/** The values of a form as the parameters of a request. An optional text that is empty is null. */
export function readValues(params: Param[], values: Values): Record<string, Value> {
  const found: Record<string, Value> = {};
  for (const param of params) {
    const text = values[param.name] ?? "";
    if (text === "" && (param.nullable || param.kind !== "string")) {
      if (!param.nullable) throw new Error(`Parameter $${param.name} needs a value.`);
      found[param.name] = null;
    } else found[param.name] = readValue(param, text);
  }
  return found;
}

function readValue(param: Param, text: string): Value {
  switch (param.kind) {
    case "bool":
      return text === "true";
    case "int":
    case "bigint":
      if (!/^-?\d+$/.test(text.trim())) throw new Error(`Parameter $${param.name} must be an integer, got "${text}".`);
      // The server also accepts the digits as text, so that no digit is lost.
      return Number.isSafeInteger(Number(text)) ? Number(text) : text.trim();
    case "float": {
      const value = Number(text);
      if (text.trim() === "" || Number.isNaN(value)) throw new Error(`Parameter $${param.name} must be a number, got "${text}".`);
      return value;
    }
    case "list":
    case "vector":
      try {
        const value = JSON.parse(text) as Value;
        if (!Array.isArray(value)) throw new Error("no list");
        return value;
      } catch {
        throw new Error(`Parameter $${param.name} must be a JSON list, such as ["a", "b"].`);
      }
    default:
      return text;
  }
}

export const valuesOf = (text: string | undefined): Values => {
  try {
    const found = JSON.parse(text ?? "{}") as unknown;
    return typeof found === "object" && found !== null ? (found as Values) : {};
  } catch {
    return {};
  }
};
export const textOf = (values: Values): string => {
  const filled = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ""));
  return Object.keys(filled).length ? writeJson(filled) : "";
};
