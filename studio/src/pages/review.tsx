// A branch as a pull request: its changes, conflicts with a choice for each, checks, and the merge.
import { useMemo, useState } from "preact/hooks";
import { Changes } from "../components/changes";
import { Checks, useChecks } from "../components/checks";
import { CommitLine } from "../components/commit_line";
import { Conflicts, resolutionOf, type Choices } from "../components/conflicts";
import { Badge, Button, Empty, ErrorBox, Icon, Loading, Tabs } from "../components/ui";
import { call, graphPath, type ApiError } from "../lib/api";
import { compareBranches, listCommits, type Comparison } from "../lib/comparison";
import { asApiError, useData, usePermissions, useSession } from "../lib/data";
import { formatAge, plural, shortId } from "../lib/format";
import { branchOf, hrefOf, navigate, patchRoute } from "../lib/route";
import type { Conflict, MergeResult } from "../lib/types";

export function ReviewPage() {
  const { route } = useSession();
  const source = branchOf(route);
  const target = route.params.into || "main";
  if (source === target) return <BranchList target={target} />;
  return <Review key={`${source}/${target}`} source={source} target={target} />;
}

const LISTED = 60;
function BranchList({ target }: { target: string }) {
  const { route, branches } = useSession();
  const names = branches.filter((name) => name !== target);
  const heads = useData(
    async (signal) => {
      const found = await Promise.all(names.slice(0, LISTED).map(async (branch) => [branch, (await listCommits(route.graph, { branch, limit: 1 }, signal))[0]] as const));
      return new Map(found);
    },
    [route.graph, names.join()],
  );
  return (
    <div class="page">
      <div class="toolbar"><h1 class="toolbar-title">Review</h1></div>
      {branches.length > 0 && !names.length && (
        <Empty title="No branches to review">
          Make changes on a branch, then read them here before they reach {target}.
        </Empty>
      )}
      <ErrorBox error={heads.error} />
      <ul class="branch-list">
        {names.slice(0, LISTED).map((name) => {
          const head = heads.value?.get(name);
          return (
            <li key={name}>
              <a href={hrefOf(patchRoute(route, { params: { branch: name, at: "" } }))}>
                <Icon name="branch" />
                <strong>{name}</strong>
                <span class="muted">{head ? `${head.message || "No message"} · ${head.actor_id ?? "no actor"} · ${formatAge(head.created_at)}` : "…"}</span>
              </a>
            </li>
          );
        })}
      </ul>
      {names.length > LISTED && <p class="muted">{plural(names.length - LISTED, "more branch", "more branches")}: choose one at the top.</p>}
    </div>
  );
}

function Review({ source, target }: { source: string; target: string }) {
  const { route, types, branches, reloadBranches, notify } = useSession();
  const view = route.params.view ?? "changes";
  const [choices, setChoices] = useState<Choices>({});
  const [found, setFound] = useState<Conflict[]>([]);
  const [merged, setMerged] = useState<MergeResult>();
  const permissions = usePermissions(route.graph, source, target);
  const mayMerge = permissions?.actions.branch_merge;
  const compared = useData((signal) => compareBranches(route.graph, source, target, signal), [route.graph, source, target]);
  const heads = [compared.value?.source.graph_commit_id, compared.value?.target.graph_commit_id];
  const preview = useData(
    async (signal) =>
      mayMerge && heads[0] ? call<MergeResult>("POST", graphPath(route.graph, "/branches/merge"), { source, target, dry_run: true }, signal) : undefined,
    [route.graph, source, target, mayMerge, ...heads],
  );
  const checks = useChecks(source);
  // Conflicts that appear only after the first ones are settled, as those of rows do after those of the schema.
  const conflicts = useMemo(() => {
    const first = preview.value?.conflicts ?? [];
    return [...first, ...found.filter((item) => !first.some((other) => other.id === item.id))];
  }, [preview.value, found]);
  const { resolve, complete } = resolutionOf(conflicts, choices, types);
  const open = conflicts.filter((item) => !(item.id in resolve)).length;

  if (compared.error) return <div class="page"><ErrorBox error={compared.error} /></div>;
  if (!compared.value) return <Loading what="Comparing the branches" />;
  const { base, commits } = compared.value;
  const authors = [...new Set(commits.map((item) => item.actor_id ?? "no actor"))];
  const reload = () => {
    setFound([]);
    setChoices({});
    compared.reload();
  };
  return (
    <div class="page review">
      <header class="review-head">
        <h1>
          <span class="branch-name">{source}</span> <span class="muted" aria-label="into">→</span>{" "}
          <select aria-label="Branch to merge into" value={target} onChange={(event) => navigate({ params: { into: event.currentTarget.value, type: "", op: "" } })}>
            {branches.filter((name) => name !== source).map((name) => <option key={name}>{name}</option>)}
          </select>
        </h1>
        <p class="muted">
          {commits.length ? `${plural(commits.length, "commit")} by ${authors.join(", ")}` : `${target} has everything that ${source} has`}
          {base && <> · since <code>{shortId(base)}</code></>}
        </p>
      </header>
      <div class="review-split">
        <section class="review-main" aria-label="Review">
          <Tabs
            label="Parts of the review"
            items={[
              { id: "changes", label: "Changes" },
              { id: "conflicts", label: "Conflicts", hint: conflicts.length ? String(conflicts.length) : undefined },
              { id: "checks", label: "Checks", hint: checks.total ? String(checks.total) : undefined },
              { id: "commits", label: "Commits", hint: String(commits.length) },
            ]}
            chosen={view}
            onChoose={(id) => navigate({ params: { view: id } }, { replace: true })}
          />
          {view === "conflicts" ? (
            !mayMerge ? (
              <Empty title="Conflicts are part of the merge">The policy does not let you merge into {target}.</Empty>
            ) : preview.error ? (
              <ErrorBox error={preview.error} />
            ) : !preview.value ? (
              <Loading what="Trying the merge" />
            ) : conflicts.length ? (
              <Conflicts conflicts={conflicts} choices={choices} onChange={setChoices} ours={target} theirs={source} />
            ) : (
              <Empty title="No conflicts">Both branches changed different things, or made the same changes.</Empty>
            )
          ) : view === "checks" ? (
            <Checks checks={checks} branch={source} />
          ) : view === "commits" ? (
            <ul class="commit-lines">
              {commits.map((item) => <li key={item.graph_commit_id}><CommitLine commit={item} /></li>)}
              {!commits.length && <Empty title="No commits" />}
            </ul>
          ) : (
            <>
              {!base && <p class="note">The branches met before their newest commits, so this compares their heads.</p>}
              <Changes before={base ?? heads[1]!} after={heads[0]!} names={["Before", source]} />
            </>
          )}
        </section>
        <aside class="merge-card card" aria-label="Merge">
          {merged ? (
            <MergeDone result={merged} />
          ) : (
            <MergeForm
              source={source}
              target={target}
              compared={compared.value}
              allowed={mayMerge}
              mayDelete={usefulDelete(permissions?.actions.branch_delete, source)}
              open={preview.loading && mayMerge ? undefined : open}
              conflicts={conflicts.length}
              findings={checks.findings}
              resolve={complete && conflicts.length ? resolve : undefined}
              onConflicts={(more) => {
                setFound((old) => [...old, ...more]);
                navigate({ params: { view: "conflicts" } }, { replace: true });
              }}
              onReload={reload}
              onMerged={(result) => {
                setMerged(result);
                reloadBranches();
                notify(`Merged ${source} into ${target}.`);
              }}
            />
          )}
        </aside>
      </div>
    </div>
  );
}

const usefulDelete = (allowed: boolean | undefined, source: string): boolean => !!allowed && source !== "main";

interface MergeFormProps {
  source: string;
  target: string;
  compared: Comparison;
  allowed?: boolean;
  mayDelete: boolean;
  /** Conflicts without a choice; undefined until they are known. */
  open?: number;
  conflicts: number;
  findings?: number;
  resolve?: unknown;
  onConflicts: (conflicts: Conflict[]) => void;
  onReload: () => void;
  onMerged: (result: MergeResult) => void;
}

function MergeForm({ source, target, compared, allowed, mayDelete, open, conflicts, findings, resolve, onConflicts, onReload, onMerged }: MergeFormProps) {
  const { route } = useSession();
  const [message, setMessage] = useState(`Merge ${source}`);
  const [deletes, setDeletes] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const nothing = !compared.commits.length;
  const merge = async () => {
    setBusy(true);
    setError(undefined);
    try {
      // Merge exactly what was reviewed: the target must not have moved.
      const body = { source, target, message, resolve, delete_branch: deletes, if_commit: compared.target.graph_commit_id };
      onMerged(await call<MergeResult>("POST", graphPath(route.graph, "/branches/merge"), body));
    } catch (problem) {
      const failure = asApiError(problem);
      if (failure.body.merge_conflicts?.length) onConflicts(failure.body.merge_conflicts);
      else setError(failure);
    } finally {
      setBusy(false);
    }
  };
  const toConflicts = hrefOf(patchRoute(route, { params: { view: "conflicts" } }));
  return (
    <form
      class="merge-form"
      onSubmit={(event) => {
        event.preventDefault();
        void merge();
      }}
    >
      <h2>Merge into {target}</h2>
      <ul class="merge-states">
        {nothing ? (
          <State tone="plain">Nothing to merge</State>
        ) : allowed === false ? (
          <State tone="change">The policy does not let you merge into {target}.</State>
        ) : open === undefined ? (
          <State tone="plain">Looking for conflicts…</State>
        ) : open ? (
          <State tone="remove"><a href={toConflicts}>{plural(open, "conflict")} to settle</a></State>
        ) : (
          <State tone="add">{conflicts ? `${plural(conflicts, "conflict")} settled` : "No conflicts"}</State>
        )}
        {findings !== undefined && (
          <State tone={findings ? "change" : "add"}>
            <a href={hrefOf(patchRoute(route, { params: { view: "checks" } }))}>{findings ? `${plural(findings, "check")} with findings` : "Checks passed"}</a>
          </State>
        )}
      </ul>
      {allowed && !nothing && (
        <>
          <label class="field">
            <span class="field-label">Message</span>
            <input value={message} onInput={(event) => setMessage(event.currentTarget.value)} />
          </label>
          {mayDelete && (
            <label class="check">
              <input type="checkbox" checked={deletes} onChange={(event) => setDeletes(event.currentTarget.checked)} />
              Delete {source} afterwards
            </label>
          )}
          <Button kind="primary" id="merge" type="submit" disabled={busy || open !== 0}>
            {busy ? "Merging…" : "Merge"}
          </Button>
        </>
      )}
      <ErrorBox error={error}>
        <Button onClick={() => (setError(undefined), onReload())}>Compare again</Button>
      </ErrorBox>
    </form>
  );
}

function State({ tone, children }: { tone: "plain" | "add" | "remove" | "change"; children: preact.ComponentChildren }) {
  return (
    <li class={`merge-state ${tone}`}>
      <span class="dot" aria-hidden="true" />
      <span>{children}</span>
    </li>
  );
}

function MergeDone({ result }: { result: MergeResult }) {
  const { route } = useSession();
  return (
    <div class="merge-form" role="status">
      <h2>Merged</h2>
      <p>
        {result.source} is in {result.target}. {result.outcome === "fast_forward" && <Badge>fast-forward</Badge>}
      </p>
      {result.branch_deleted && <p class="muted">The branch {result.source} is deleted.</p>}
      {result.branch_delete_error && <p class="note">{result.branch_delete_error}</p>}
      <a class="button plain" href={hrefOf(patchRoute(route, { page: "history", params: { branch: result.target, at: "" } }))}>History of {result.target}</a>
    </div>
  );
}
