// A commit in one line: message, actor and age.
import { useSession } from "../lib/data";
import { formatAge, formatTime, shortId } from "../lib/format";
import { hrefOf, patchRoute } from "../lib/route";
import type { Commit } from "../lib/types";

export function CommitLine({ commit }: { commit: Commit }) {
  const { route } = useSession();
  return (
    <a class="commit-line" href={hrefOf(patchRoute(route, { page: "history", params: { commit: commit.graph_commit_id, view: "", type: "", id: "", op: "" } }))}>
      <strong>{commit.message || "No message"}</strong>
      <span class="muted" title={formatTime(commit.created_at)}>
        {commit.actor_id ?? "no actor"} · {formatAge(commit.created_at)} · <code>{shortId(commit.graph_commit_id)}</code>
      </span>
    </a>
  );
}
