// Commits as a graph of branches and merges, newest first.
import { useMemo } from "preact/hooks";
import { laneColour } from "../lib/colours";
import { layOutCommits, type GraphRow } from "../lib/commit_graph";
import { useSession } from "../lib/data";
import { formatAge, formatTime, shortId } from "../lib/format";
import { hrefOf, patchRoute } from "../lib/route";
import type { Commit } from "../lib/types";
import { Badge } from "./ui";

const LANE = 16;
const HEIGHT = 50;
const MIDDLE = 21;

interface Props {
  commits: Commit[];
  chosen: string;
  trunk?: string;
  /** Names of branches and tags by commit id. */
  heads: Map<string, string[]>;
  tags: Map<string, string[]>;
}

export function CommitGraph({ commits, chosen, trunk, heads, tags }: Props) {
  const { route } = useSession();
  const { rows, lanes } = useMemo(() => layOutCommits(commits, trunk), [commits, trunk]);
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" || event.key === "j" ? 1 : event.key === "ArrowUp" || event.key === "k" ? -1 : 0;
    if (!step) return;
    const links = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("a.graph-commit")];
    const place = links.indexOf(document.activeElement as HTMLElement);
    links[Math.min(Math.max(place + step, 0), links.length - 1)]?.focus();
    event.preventDefault();
  };
  return (
    <ol class="commit-graph" aria-label="Commits, newest first" onKeyDown={move}>
      {rows.map((row) => {
        const { commit } = row;
        const id = commit.graph_commit_id;
        return (
          <li key={id}>
            <a
              class="graph-commit"
              data-commit={id}
              href={hrefOf(patchRoute(route, { params: { commit: id, type: "", op: "" } }))}
              aria-current={id === chosen ? "true" : undefined}
            >
              <Lanes row={row} lanes={lanes} />
              <span class="graph-text">
                <span class="graph-title">
                  <strong>{commit.message || "No message"}</strong>
                  {heads.get(id)?.map((name) => <Badge key={name} tone="accent">{name}</Badge>)}
                  {tags.get(id)?.map((name) => <Badge key={name} tone="change">{name}</Badge>)}
                </span>
                <span class="muted" title={formatTime(commit.created_at)}>
                  {commit.actor_id ?? "no actor"} · {formatAge(commit.created_at)} · <code>{shortId(id)}</code>
                </span>
              </span>
            </a>
          </li>
        );
      })}
    </ol>
  );
}

function Lanes({ row, lanes }: { row: GraphRow; lanes: number }) {
  const x = (lane: number) => 12 + lane * LANE;
  const width = 12 + lanes * LANE;
  const curve = (from: [number, number], to: [number, number]) => {
    const middle = (from[1] + to[1]) / 2;
    return from[0] === to[0] ? `M${from[0]} ${from[1]}V${to[1]}` : `M${from[0]} ${from[1]}C${from[0]} ${middle} ${to[0]} ${middle} ${to[0]} ${to[1]}`;
  };
  return (
    <svg class="lanes" width={width} height={HEIGHT} viewBox={`0 0 ${width} ${HEIGHT}`} aria-hidden="true">
      {row.passing.map((lane) => <path key={`p${lane}`} d={`M${x(lane)} 0V${HEIGHT}`} stroke={laneColour(lane)} />)}
      {row.incoming.map((lane) => <path key={`i${lane}`} d={curve([x(lane), 0], [x(row.lane), MIDDLE])} stroke={laneColour(lane)} />)}
      {row.outgoing.map((lane) => <path key={`o${lane}`} d={curve([x(row.lane), MIDDLE], [x(lane), HEIGHT])} stroke={laneColour(Math.max(lane, row.lane))} />)}
      <circle cx={x(row.lane)} cy={MIDDLE} r={row.commit.merged_parent_commit_id ? 4 : 5} fill={row.commit.merged_parent_commit_id ? "var(--panel)" : laneColour(row.lane)} stroke={laneColour(row.lane)} />
    </svg>
  );
}
