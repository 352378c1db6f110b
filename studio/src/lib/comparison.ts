// What a branch has that another has not: the commits since their histories met.
import { get, graphPath } from "./api";
import type { Commit } from "./types";

// Commits of each branch that are searched for the point where they met.
const SEARCHED = 2000;

export interface Comparison {
  /** The commit where both met; undefined if it is not among the newest commits. */
  base?: string;
  source: Commit;
  target: Commit;
  /** The commits that only the source has, newest first. */
  commits: Commit[];
}

export async function compareBranches(graph: string, source: string, target: string, signal: AbortSignal): Promise<Comparison> {
  const [theirs, ours] = await Promise.all([source, target].map((branch) => listCommits(graph, { branch, merged: true, limit: SEARCHED }, signal)));
  const known = new Set(ours.map((item) => item.graph_commit_id));
  return {
    base: theirs.find((item) => known.has(item.graph_commit_id))?.graph_commit_id,
    source: theirs[0],
    target: ours[0],
    commits: theirs.filter((item) => !known.has(item.graph_commit_id)),
  };
}

export async function listCommits(graph: string, query: Record<string, string | number | boolean | undefined>, signal?: AbortSignal): Promise<Commit[]> {
  return (await get<{ commits: Commit[] }>(graphPath(graph, "/commits"), query, signal)).commits;
}
