// Optimize, verify, collect garbage, and export as a backup. Each shows how long it runs and what it did.
import { useEffect, useRef, useState } from "preact/hooks";
import { call, graphPath, saveResponse, writeJson, type ApiError } from "../lib/api";
import { asApiError, useSession } from "../lib/data";
import { formatBytes, formatCount, plural } from "../lib/format";
import { branchOf } from "../lib/route";
import type { Commit } from "../lib/types";
import { Button, ErrorBox } from "./ui";

interface Optimized {
  commit: Commit | null;
  datasets: { type_key: string; [name: string]: unknown }[];
}
interface Verified {
  ok: boolean;
  commits: number;
  versions: number;
  files: number;
  rows: number;
  bytes_read: number;
  damage: { kind: string; problem: string; remedy: string; file: string | null }[];
  notes: string[];
}
interface Cleaned {
  confirmed: boolean;
  objects_removed: number;
  datasets: { type_key: string; [name: string]: unknown }[];
}

export function Maintenance() {
  const { route, permissions } = useSession();
  const branch = branchOf(route);
  const may = permissions?.actions ?? {};
  const [quick, setQuick] = useState(false);
  const [format, setFormat] = useState("ndjson");
  const [keep, setKeep] = useState("10");
  const [age, setAge] = useState("7d");
  const path = (rest: string) => graphPath(route.graph, rest);
  const clean = (confirm: boolean, signal: AbortSignal) =>
    call<Cleaned>("POST", path("/cleanup"), { confirm, keep: keep.trim() ? Number(keep) : null, older_than: age.trim() || null }, signal);
  return (
    <div class="jobs">
      <Job
        name="Optimize"
        text={`Compacts the tables of ${branch} and builds missing indexes. Makes one commit, or none if there is nothing to do.`}
        allowed={may.change}
        run={(signal) => call<Optimized>("POST", path("/optimize"), { branch, message: `Optimize ${branch}` }, signal)}
        show={(result) => (
          <>
            <p>{result.commit ? `Committed for ${plural(result.datasets.length, "type")}.` : "Nothing to do."}</p>
            <Details value={result.datasets} />
          </>
        )}
      />
      <Job
        name="Verify"
        text="Reads the graph in storage and checks that it is complete and unaltered."
        allowed={may.admin}
        options={
          <label class="check">
            <input type="checkbox" checked={quick} onChange={(event) => setQuick(event.currentTarget.checked)} />
            Quick: sizes only
          </label>
        }
        run={(signal) => call<Verified>("POST", path("/verify"), { quick }, signal)}
        show={(result) => (
          <>
            <p>
              <strong>{result.ok ? "Complete and unaltered." : `${plural(result.damage.length, "damage", "damages")} found.`}</strong>{" "}
              {plural(result.commits, "commit")}, {plural(result.versions, "table version")}, {plural(result.rows, "row")}, {formatBytes(result.bytes_read)} read.
            </p>
            <ul class="bullets">
              {result.damage.map((item) => <li key={item.problem + item.file}><strong>{item.kind}</strong> {item.problem} <span class="muted">{item.remedy}</span></li>)}
              {result.notes.map((item) => <li key={item} class="muted">{item}</li>)}
            </ul>
          </>
        )}
      />
      <Job
        name="Collect garbage"
        text="Counts the data that only older commits need. A second step removes it, and these commits can no longer be read."
        allowed={may.change}
        options={
          <>
            <label class="inline-field">
              <span class="muted">Keep commits</span>
              <input class="narrow-input" inputMode="numeric" value={keep} onInput={(event) => setKeep(event.currentTarget.value)} />
            </label>
            <label class="inline-field">
              <span class="muted">and younger than</span>
              <input class="narrow-input" value={age} onInput={(event) => setAge(event.currentTarget.value)} />
            </label>
          </>
        }
        run={(signal) => clean(false, signal)}
        show={(result, again) => (
          <>
            <p>
              {plural(result.objects_removed, "object")} {result.confirmed ? "removed." : "would be removed."}
            </p>
            <Details value={result.datasets} />
            {!result.confirmed && may.admin && (
              <Button kind="danger" onClick={() => again((signal) => clean(true, signal))}>Remove it</Button>
            )}
          </>
        )}
      />
      <Job
        name="Export"
        text={`Downloads ${branch} as files in a tar archive, which load into an empty graph. The command backup copies all commits.`}
        allowed={may.export}
        options={
          <label class="inline-field">
            <span class="muted">Format</span>
            <select value={format} onChange={(event) => setFormat(event.currentTarget.value)}>
              <option value="ndjson">NDJSON</option>
              <option value="parquet">Parquet</option>
            </select>
          </label>
        }
        run={(signal, report) => saveResponse(path("/export/files"), { branch, format }, `${route.graph}-${branch}.tar`, report, signal)}
        show={(bytes) => <p>{formatBytes(bytes)} downloaded.</p>}
      />
    </div>
  );
}

type Run<T> = (signal: AbortSignal, report: (bytes: number) => void) => Promise<T>;
interface JobProps<T> {
  name: string;
  text: string;
  allowed?: boolean;
  options?: preact.ComponentChildren;
  run: Run<T>;
  show: (result: T, again: (run: Run<T>) => void) => preact.ComponentChildren;
}

function Job<T>({ name, text, allowed, options, run, show }: JobProps<T>) {
  const [running, setRunning] = useState<AbortController>();
  const [result, setResult] = useState<T>();
  const [error, setError] = useState<ApiError>();
  const [seconds, setSeconds] = useState(0);
  const [bytes, setBytes] = useState(0);
  const active = useRef<AbortController | undefined>(undefined);
  useEffect(() => () => active.current?.abort(), []);
  useEffect(() => {
    if (!running) return;
    const began = performance.now();
    setSeconds(0);
    const timer = setInterval(() => setSeconds((performance.now() - began) / 1000), 200);
    return () => clearInterval(timer);
  }, [running]);
  const start = async (work: Run<T>) => {
    const aborter = new AbortController();
    active.current = aborter;
    setRunning(aborter);
    setError(undefined);
    setResult(undefined);
    setBytes(0);
    try {
      setResult(await work(aborter.signal, setBytes));
    } catch (problem) {
      if ((problem as Error).name !== "AbortError") setError(asApiError(problem));
    } finally {
      setRunning(undefined);
    }
  };
  return (
    <section class="card job" aria-label={name} data-job={name}>
      <div class="row">
        <h2>{name}</h2>
        <span class="spacer" />
        {allowed && options}
        {allowed === false ? (
          <span class="muted">The policy does not let you do this.</span>
        ) : running ? (
          <Button onClick={() => running.abort()}>Stop waiting</Button>
        ) : (
          <Button kind="primary" disabled={!allowed} onClick={() => void start(run)}>{name}</Button>
        )}
      </div>
      <p class="muted">{text}</p>
      {running && (
        <div class="progress" role="status">
          <progress aria-label={`${name} is running`} />
          <span class="muted">{seconds.toFixed(1)} s{bytes ? ` · ${formatBytes(bytes)}` : ""}</span>
        </div>
      )}
      <ErrorBox error={error} />
      {result !== undefined && <div class="job-result" role="status">{show(result, (work) => void start(work))}</div>}
    </section>
  );
}

// Where the new versions of the tables are, which only the engine needs.
const PLUMBING = new Set(["committed", "published_dataset_version", "lance_head_version"]);
const factText = (fact: unknown): string =>
  typeof fact === "number" ? formatCount(fact) : typeof fact === "string" ? fact : Array.isArray(fact) && fact.every((item) => typeof item === "string") ? fact.join(", ") : writeJson(fact);

/** What was done for each type, without what is empty. */
function Details({ value }: { value: { type_key: string; [name: string]: unknown }[] }) {
  const rows = value.map(({ type_key: type, ...rest }) => ({
    type,
    facts: Object.entries(rest).filter(([name, item]) => !PLUMBING.has(name) && item !== null && item !== 0 && item !== false && !(Array.isArray(item) && !item.length)),
  }));
  if (!rows.some((item) => item.facts.length)) return null;
  return (
    <table class="plain-table">
      <tbody>
        {rows.filter((item) => item.facts.length).map((item) => (
          <tr key={item.type}>
            <th scope="row">{item.type.replace(":", " ")}</th>
            <td class="small">{item.facts.map(([name, fact]) => `${name.replaceAll("_", " ")} ${factText(fact)}`).join(" · ")}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
