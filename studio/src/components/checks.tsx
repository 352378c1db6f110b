// Audits of a branch: stored queries whose description begins with `Check`. A row that one returns is a finding.
import { call, get, graphPath, type ApiError } from "../lib/api";
import { asApiError, useData, useSession } from "../lib/data";
import { plural } from "../lib/format";
import type { ReadResult, StoredQuery } from "../lib/types";
import { DataTable } from "./table";
import { Badge, Empty, ErrorBox, Loading } from "./ui";

interface Outcome {
  query: StoredQuery;
  read?: ReadResult;
  error?: ApiError;
}
export interface ChecksState {
  outcomes?: Outcome[];
  error?: ApiError;
  total: number;
  /** The checks with rows or an error; undefined until they have run, or if there are none. */
  findings?: number;
}

const isCheck = (query: StoredQuery): boolean =>
  !query.mutation && /^check\b/i.test(query.description ?? "") && query.params.every((item) => item.nullable);

/** Run the checks on the head of a branch. */
export function useChecks(branch: string): ChecksState {
  const { route } = useSession();
  const ran = useData(
    async (signal) => {
      const { queries } = await get<{ queries: StoredQuery[] }>(graphPath(route.graph, "/queries"), {}, signal);
      return Promise.all(
        queries.filter(isCheck).map(async (query): Promise<Outcome> => {
          try {
            return { query, read: await call<ReadResult>("POST", graphPath(route.graph, `/queries/${encodeURIComponent(query.name)}`), { branch }, signal) };
          } catch (error) {
            return { query, error: asApiError(error) };
          }
        }),
      );
    },
    [route.graph, branch],
  );
  const outcomes = ran.value;
  return {
    outcomes,
    error: ran.error,
    total: outcomes?.length ?? 0,
    findings: outcomes?.length ? outcomes.filter((item) => item.error || item.read!.row_count > 0).length : undefined,
  };
}

export function Checks({ checks, branch }: { checks: ChecksState; branch: string }) {
  if (checks.error) return <ErrorBox error={checks.error} />;
  if (!checks.outcomes) return <Loading what="Checking" />;
  if (!checks.outcomes.length)
    return (
      <Empty title="No checks">
        Store queries with a description that begins with <code>Check:</code> on the server. Rows that they return on {branch} are listed here.
      </Empty>
    );
  return (
    <ul class="checks">
      {checks.outcomes.map(({ query, read, error }) => (
        <li key={query.name} class="card">
          <p class="row">
            <Badge tone={error ? "remove" : read!.row_count ? "change" : "add"}>{error ? "failed" : read!.row_count ? plural(read!.row_count, "row") : "passed"}</Badge>
            <strong>{query.name}</strong>
            <span class="muted">{query.description}</span>
          </p>
          <ErrorBox error={error} />
          {read && read.rows.length > 0 && (
            <div class="check-rows" style={{ height: `${Math.min(7, read.rows.length) * 30 + 36}px` }}>
              <DataTable columns={read.columns ?? Object.keys(read.rows[0])} rows={read.rows} label={`Findings of ${query.name}`} />
            </div>
          )}
        </li>
      ))}
    </ul>
  );
}
