// What the server has done since the page is open: rates and levels with a line for the last minutes.
import { useEffect, useState } from "preact/hooks";
import { getText } from "../lib/api";
import { useData, useSession } from "../lib/data";
import { formatBytes, formatCount } from "../lib/format";
import { parseMetrics, sumOf, type Sample } from "../lib/metrics";
import { useTick } from "./running";
import { Empty, ErrorBox, Loading } from "./ui";

const KEPT = 120;
// The line of the first readings does not fill the width.
const MOST_EMPTY = 15;

interface Reading {
  time: number;
  values: number[];
}
interface Tile {
  label: string;
  hint: string;
  read: (samples: Sample[], graph: string) => number;
  /** The value is a counter, so its growth in a second is shown. */
  rate?: boolean;
  format: (value: number) => string;
}

const short = (value: number): string => (value < 10 ? value.toFixed(1) : formatCount(Math.round(value)));
const TILES: Tile[] = [
  { label: "Requests", hint: "in a second", rate: true, format: short, read: (all) => sumOf(all, "omnigraph_requests_total") },
  { label: "In flight", hint: "requests now", format: formatCount, read: (all) => sumOf(all, "omnigraph_requests_in_flight") },
  { label: "Commits", hint: "of this graph since the start", format: formatCount, read: (all, graph) => sumOf(all, "omnigraph_graph_commits_total", { graph }) },
  { label: "Write retries", hint: "of this graph since the start", format: formatCount, read: (all, graph) => sumOf(all, "omnigraph_graph_write_retries_total", { graph }) },
  { label: "Cache", hint: "of this graph", format: formatBytes, read: (all, graph) => sumOf(all, "omnigraph_graph_cache_bytes", { graph }) },
  {
    label: "Cache hits",
    hint: "of all reads of this graph",
    format: (value) => `${Math.round(value * 100)} %`,
    read: (all, graph) => {
      const hits = sumOf(all, "omnigraph_graph_cache_hits_total", { graph });
      return hits / Math.max(1, hits + sumOf(all, "omnigraph_graph_cache_misses_total", { graph }));
    },
  },
  { label: "Read from storage", hint: "in a second", rate: true, format: formatBytes, read: (all, graph) => sumOf(all, "omnigraph_graph_storage_bytes_total", { graph, kind: "read" }) },
  { label: "Memory", hint: "of the server", format: formatBytes, read: (all) => sumOf(all, "process_resident_memory_bytes") },
  { label: "Processor", hint: "cores in use", rate: true, format: (value) => value.toFixed(2), read: (all) => sumOf(all, "process_cpu_seconds_total") },
];

export function Metrics() {
  const { route } = useSession();
  const tick = useTick();
  const loaded = useData(async () => parseMetrics(await getText("metrics")), [tick]);
  const [readings, setReadings] = useState<Reading[]>([]);
  useEffect(() => {
    if (!loaded.value) return;
    const reading = { time: performance.now() / 1000, values: TILES.map((tile) => tile.read(loaded.value!, route.graph)) };
    setReadings((old) => [...old, reading].slice(-KEPT));
  }, [loaded.value]);
  if (loaded.error && !readings.length)
    return loaded.error.status === 404 ? <Empty title="This server offers no metrics here">It can be started with <code>--metrics token</code>.</Empty> : <ErrorBox error={loaded.error} />;
  if (!readings.length) return <Loading />;
  return (
    <dl class="tiles metrics">
      {TILES.map((tile, place) => {
        const line = tile.rate ? ratesOf(readings, place) : readings.map((item) => item.values[place]);
        return (
          <div key={tile.label} class="tile">
            <dt>{tile.label}</dt>
            <dd>
              <span class="tile-value">{line.length ? tile.format(line[line.length - 1]) : "…"}</span>
              <span class="muted small">{tile.hint}</span>
              <Sparkline values={line} />
            </dd>
          </div>
        );
      })}
    </dl>
  );
}

const ratesOf = (readings: Reading[], place: number): number[] =>
  readings.slice(1).map((item, number) => Math.max(0, (item.values[place] - readings[number].values[place]) / Math.max(0.1, item.time - readings[number].time)));

function Sparkline({ values }: { values: number[] }) {
  const top = Math.max(...values, 1e-9);
  const width = Math.max(MOST_EMPTY, values.length - 1);
  const points = values.map((value, place) => `${(place / width) * 120},${27 - (value / top) * 24}`).join(" ");
  return (
    <svg class="sparkline" viewBox="0 0 120 28" preserveAspectRatio="none" aria-hidden="true">
      <polyline points={points} />
    </svg>
  );
}
