// The layout of a commit graph: each commit gets a lane, and lines lead to the lanes of its parents.
import type { Commit } from "./types";

export interface GraphRow {
  commit: Commit;
  lane: number;
  /** Lanes whose lines pass this row. */
  passing: number[];
  /** Lanes whose lines end here, from the row above. */
  incoming: number[];
  /** Lanes on which the lines to the parents leave. */
  outgoing: number[];
}

/** Lay out commits, newest first. The lane of `trunk`, a commit id, is the first. */
export function layOutCommits(commits: Commit[], trunk?: string): { rows: GraphRow[]; lanes: number } {
  const known = new Set(commits.map((item) => item.graph_commit_id));
  // The commit that each lane leads to.
  const open: (string | null)[] = trunk && known.has(trunk) ? [trunk] : [];
  let widest = 1;
  let begun = false;
  const rows = orderCommits(commits).map((commit): GraphRow => {
    const id = commit.graph_commit_id;
    const incoming = open.flatMap((target, lane) => (target === id && (begun || id !== trunk) ? [lane] : []));
    let lane = open.indexOf(id);
    if (lane < 0) lane = freeLane(open);
    const before = open.map((target) => target !== null && target !== id);
    // The line of the trunk begins at its commit.
    if (!begun && open[0] === trunk && id !== trunk) before[0] = false;
    if (id === trunk) begun = true;
    open.forEach((target, place) => target === id && (open[place] = null));
    const outgoing = [commit.parent_commit_id, commit.merged_parent_commit_id].flatMap((parent, number) => {
      if (!parent || !known.has(parent)) return [];
      let place = open.indexOf(parent);
      if (place < 0) {
        place = number === 0 && (open[lane] ?? null) === null ? lane : freeLane(open);
        open[place] = parent;
      }
      return [place];
    });
    widest = Math.max(widest, open.length);
    return { commit, lane, incoming, outgoing, passing: before.flatMap((is, place) => (is ? [place] : [])) };
  });
  return { rows, lanes: widest };
}

function freeLane(open: (string | null)[]): number {
  const found = open.indexOf(null);
  if (found >= 0) return found;
  open.push(null);
  return open.length - 1;
}

/** Newest first, and each commit before its parents also if clocks differ. */
function orderCommits(commits: Commit[]): Commit[] {
  const byId = new Map(commits.map((item) => [item.graph_commit_id, item]));
  const parentsOf = (item: Commit) => [item.parent_commit_id, item.merged_parent_commit_id].filter((id): id is string => !!id && byId.has(id));
  const children = new Map<string, number>();
  for (const item of commits) for (const parent of parentsOf(item)) children.set(parent, (children.get(parent) ?? 0) + 1);
  const ready = commits.filter((item) => !children.get(item.graph_commit_id)).sort(byAge);
  const ordered: Commit[] = [];
  for (let next = ready.shift(); next; next = ready.shift()) {
    ordered.push(next);
    for (const parent of parentsOf(next)) {
      const left = children.get(parent)! - 1;
      children.set(parent, left);
      if (left) continue;
      const item = byId.get(parent)!;
      const place = ready.findIndex((other) => byAge(item, other) < 0);
      ready.splice(place < 0 ? ready.length : place, 0, item);
    }
  }
  return ordered;
}

const byAge = (a: Commit, b: Commit): number => b.created_at - a.created_at;
