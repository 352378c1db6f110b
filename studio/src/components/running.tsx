// The running requests of a graph. The list is read again every two seconds.
import { useEffect, useState } from "preact/hooks";
import { call, get, graphPath } from "../lib/api";
import { asApiError, useData, useSession } from "../lib/data";
import { formatBytes } from "../lib/format";
import type { RunningQuery } from "../lib/types";
import { Badge, Button, Empty, ErrorBox, Loading } from "./ui";

const EVERY = 2000;

/** A number that changes every two seconds while the page is visible. */
export function useTick(): number {
  const [tick, setTick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setTick((old) => old + 1), EVERY);
    return () => clearInterval(timer);
  }, []);
  return tick;
}

export function Running() {
  const { route, notify } = useSession();
  const tick = useTick();
  const [cancelled, setCancelled] = useState<ReadonlySet<string>>(new Set());
  const found = useData((signal) => get<{ queries: RunningQuery[] }>(graphPath(route.graph, "/running"), {}, signal), [route.graph, tick]);
  const cancel = async (query: RunningQuery) => {
    try {
      const answer = await call<{ cancelled: boolean }>("DELETE", graphPath(route.graph, `/running/${encodeURIComponent(query.id)}`));
      setCancelled((old) => new Set([...old, query.id]));
      notify(answer.cancelled ? "The request is cancelled." : "The write has begun and will be completed.");
    } catch (error) {
      notify(asApiError(error).message, "error");
    }
    found.reload();
  };
  if (found.error) return <ErrorBox error={found.error} />;
  if (!found.value) return <Loading />;
  if (!found.value.queries.length) return <Empty title="Nothing is running">Queries, writes and maintenance of this graph are listed here while they run.</Empty>;
  return (
    <ul class="running" aria-label="Running requests">
      {found.value.queries.map((item) => (
        <li key={item.id} class="card" data-query={item.id}>
          <div class="row">
            <Badge tone={item.state === "running" ? "add" : "change"}>{item.state}</Badge>
            <strong>{item.operation}</strong>
            <span class="muted">
              {item.actor_id ?? "no actor"} · {item.seconds.toFixed(1)} s{item.memory_bytes ? ` · ${formatBytes(item.memory_bytes)}` : ""}
            </span>
            <span class="spacer" />
            {item.cancellable && (
              <Button kind="danger" data-cancel disabled={cancelled.has(item.id)} onClick={() => void cancel(item)}>
                Cancel
              </Button>
            )}
          </div>
          {item.query && <pre class="running-text">{item.query}</pre>}
        </li>
      ))}
    </ul>
  );
}
