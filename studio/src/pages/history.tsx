// The commits of a graph, the difference of two states, and the versions of one entity.
import { useMemo, useState } from "preact/hooks";
import { Changes } from "../components/changes";
import { CommitGraph } from "../components/commit_graph";
import { EntityHistory } from "../components/entity_history";
import { RevertDialog } from "../components/revert_dialog";
import { Button, Empty, ErrorBox, Field, Loading, Tabs } from "../components/ui";
import { get, graphPath } from "../lib/api";
import { listCommits } from "../lib/comparison";
import { useData, useSession } from "../lib/data";
import { formatTime, shortId } from "../lib/format";
import { branchOf, hrefOf, navigate, patchRoute } from "../lib/route";
import type { Commit, Tag } from "../lib/types";

const PAGE = 100;
// Each branch is a request.
const BRANCHES = 12;

export function HistoryPage() {
  const { route } = useSession();
  const view = route.params.view || "commits";
  return (
    <div class="page wide">
      <div class="toolbar">
        <h1 class="toolbar-title">History</h1>
        <Tabs
          label="Views of the history"
          items={[{ id: "commits", label: "Commits" }, { id: "compare", label: "Compare" }, { id: "entity", label: "Entity" }]}
          chosen={view}
          onChoose={(id) => navigate({ params: { view: id === "commits" ? "" : id, type: "", op: "", id: "" } })}
        />
      </div>
      {view === "compare" ? <Compare /> : view === "entity" ? <EntityHistory /> : <Log />}
    </div>
  );
}

function Log() {
  const { route, branches } = useSession();
  const branch = branchOf(route);
  const only = route.params.only === "1";
  const [limit, setLimit] = useState(PAGE);
  const names = only ? [branch] : [...new Set([branch, "main", ...branches])].slice(0, BRANCHES);
  const loaded = useData(
    async (signal) => {
      const found = await Promise.all(
        names.map(async (name) => [name, await listCommits(route.graph, { branch: name, merged: true, limit }, signal)] as const),
      );
      return { lists: found, tags: (await get<{ tags: Tag[] }>(graphPath(route.graph, "/tags"), {}, signal)).tags };
    },
    [route.graph, names.join(), limit],
  );
  const commits = useMemo(
    () => [...new Map((loaded.value?.lists ?? []).flatMap(([, list]) => list.map((item) => [item.graph_commit_id, item] as const))).values()],
    [loaded.value],
  );
  const heads = useMemo(() => namesByCommit((loaded.value?.lists ?? []).flatMap(([name, list]) => (list[0] ? [[list[0].graph_commit_id, name]] : []))), [loaded.value]);
  const tags = useMemo(() => namesByCommit((loaded.value?.tags ?? []).map((item) => [item.graph_commit_id, item.name])), [loaded.value]);
  if (loaded.error) return <ErrorBox error={loaded.error} />;
  if (!loaded.value) return <Loading />;
  const lists = new Map(loaded.value.lists);
  const head = lists.get(branch)?.[0];
  const wanted = route.params.commit ?? route.params.at ?? "";
  const chosen = wanted || head?.graph_commit_id || "";
  const more = loaded.value.lists.some(([, list]) => list.length === limit);
  return (
    <div class={route.params.commit ? "history-split opened" : "history-split"}>
      <section class="history-list" aria-label="Commits">
        <div class="row history-tools">
          <label class="check">
            <input type="checkbox" checked={only} onChange={(event) => navigate({ params: { only: event.currentTarget.checked ? "1" : "" } }, { replace: true })} />
            Only {branch}
          </label>
          <span class="spacer" />
          <span class="muted">{branches.length > BRANCHES && !only ? `${BRANCHES} of ${branches.length} branches` : ""}</span>
        </div>
        <CommitGraph commits={commits} chosen={chosen} trunk={(lists.get("main") ?? lists.get(branch))?.[0]?.graph_commit_id} heads={heads} tags={tags} />
        {more && <p class="row more"><Button onClick={() => setLimit(limit * 4)} disabled={loaded.loading}>Older commits</Button></p>}
      </section>
      {chosen && <CommitDetails key={chosen} id={chosen} known={commits.find((item) => item.graph_commit_id === chosen)} onChange={loaded.reload} />}
    </div>
  );
}

function namesByCommit(pairs: string[][]): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const [id, name] of pairs) found.set(id, [...(found.get(id) ?? []), name]);
  return found;
}

function CommitDetails({ id, known, onChange }: { id: string; known?: Commit; onChange: () => void }) {
  const { route, permissions, notify } = useSession();
  const [reverting, setReverting] = useState(false);
  const loaded = useData(async (signal) => known ?? get<Commit>(graphPath(route.graph, `/commits/${encodeURIComponent(id)}`), {}, signal), [route.graph, id, known]);
  if (loaded.error) return <section class="commit-details"><ErrorBox error={loaded.error} /></section>;
  const commit = loaded.value;
  if (!commit) return <Loading />;
  const branch = branchOf(route);
  const commitLink = (other: string) => <a href={hrefOf(patchRoute(route, { params: { commit: other, type: "", op: "" } }))}><code>{shortId(other)}</code></a>;
  return (
    <section class="commit-details" aria-label="Commit">
      <header class="card commit-head">
        <h2>{commit.message || "No message"}</h2>
        <dl class="facts">
          <div><dt>Actor</dt><dd>{commit.actor_id ?? "none"}</dd></div>
          <div><dt>Time</dt><dd>{formatTime(commit.created_at)}</dd></div>
          <div><dt>Branch</dt><dd>{commit.graph_branch ?? "main"}</dd></div>
          <div><dt>Commit</dt><dd><code>{commit.graph_commit_id}</code></dd></div>
          {commit.parent_commit_id && <div><dt>Parent</dt><dd>{commitLink(commit.parent_commit_id)}</dd></div>}
          {commit.merged_parent_commit_id && <div><dt>Merged</dt><dd>{commitLink(commit.merged_parent_commit_id)}</dd></div>}
        </dl>
        <div class="row">
          <a class="button plain" href={hrefOf(patchRoute(route, { page: "query", params: { at: commit.graph_commit_id } }))}>Query at this commit</a>
          <a class="button plain" href={hrefOf(patchRoute(route, { params: { view: "compare", before: commit.graph_commit_id, after: branch, type: "", op: "" } }))}>Compare with {branch}</a>
          {permissions?.actions.change && commit.parent_commit_id && <Button id="open-revert" onClick={() => setReverting(true)}>Revert…</Button>}
        </div>
      </header>
      {commit.parent_commit_id ? (
        <Changes before={commit.parent_commit_id} after={commit.graph_commit_id} names={["Before", "After"]} />
      ) : (
        <Empty title="The first commit">The graph was created with it.</Empty>
      )}
      {reverting && (
        <RevertDialog
          commit={commit}
          branch={branch}
          onClose={() => setReverting(false)}
          onReverted={(made) => {
            setReverting(false);
            notify(made ? "Reverted with a new commit." : "There was nothing to revert.");
            if (made) navigate({ params: { commit: made.graph_commit_id, type: "", op: "" } });
            onChange();
          }}
        />
      )}
    </section>
  );
}

function Compare() {
  const { route, branches } = useSession();
  const { before = "main", after = branchOf(route) } = route.params;
  const names = useData(
    async (signal) => {
      const [tags, commits] = await Promise.all([
        get<{ tags: Tag[] }>(graphPath(route.graph, "/tags"), {}, signal),
        listCommits(route.graph, { branch: branchOf(route), merged: true, limit: PAGE }, signal),
      ]);
      return { tags: tags.tags, commits };
    },
    [route.graph, branchOf(route)],
  );
  const choose = (newBefore: string, newAfter: string) => navigate({ params: { before: newBefore, after: newAfter, type: "", op: "" } });
  const state = (label: string, value: string, change: (text: string) => void) => (
    <Field label={label}>
      <input list="states" value={value} onChange={(event) => event.currentTarget.value.trim() && change(event.currentTarget.value.trim())} />
    </Field>
  );
  const shown = (name: string) => (/^[0-9A-Z]{26}$/.test(name) ? shortId(name) : name);
  return (
    <>
      <div class="compare-states">
        {state("Before", before, (text) => choose(text, after))}
        <Button onClick={() => choose(after, before)} aria-label="Swap the states" title="Swap the states">⇄</Button>
        {state("After", after, (text) => choose(before, text))}
        <datalist id="states">
          {branches.map((name) => <option key={name} value={name}>branch</option>)}
          {names.value?.tags.map((item) => <option key={item.name} value={item.name}>tag</option>)}
          {names.value?.commits.map((item) => <option key={item.graph_commit_id} value={item.graph_commit_id}>{item.message ?? "commit"}</option>)}
        </datalist>
        <p class="muted">A branch, a tag, a commit, or a name such as <code>main~2</code>.</p>
      </div>
      {before === after ? <Empty title="Choose two states" /> : <Changes before={before} after={after} names={[shown(before), shown(after)]} />}
    </>
  );
}
