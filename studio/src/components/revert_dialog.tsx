// Revert a commit: a dry run shows the conflicts with later commits, then a new commit undoes it.
import { useState } from "preact/hooks";
import { call, graphPath, type ApiError } from "../lib/api";
import { asApiError, useData, useSession } from "../lib/data";
import type { Commit, MergeResult } from "../lib/types";
import { Conflicts, resolutionOf, type Choices } from "./conflicts";
import { Button, Dialog, ErrorBox, Loading } from "./ui";

interface Props {
  commit: Commit;
  branch: string;
  onClose: () => void;
  onReverted: (commit: Commit | null | undefined) => void;
}

export function RevertDialog({ commit, branch, onClose, onReverted }: Props) {
  const { route, types } = useSession();
  const path = graphPath(route.graph, `/commits/${commit.graph_commit_id}/revert`);
  const [choices, setChoices] = useState<Choices>({});
  const [message, setMessage] = useState(`Revert ${commit.message || commit.graph_commit_id}`);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const preview = useData((signal) => call<MergeResult>("POST", path, { branch, dry_run: true }, signal), [path, branch]);
  const conflicts = preview.value?.conflicts ?? [];
  const { resolve, complete } = resolutionOf(conflicts, choices, types);
  const nothing = preview.value?.outcome === "already_up_to_date";
  const revert = async () => {
    setBusy(true);
    setError(undefined);
    try {
      onReverted((await call<MergeResult>("POST", path, { branch, message, resolve: conflicts.length ? resolve : undefined })).commit);
    } catch (problem) {
      setError(asApiError(problem));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title={`Revert on ${branch}`} onClose={onClose} wide={conflicts.length > 0}>
      <p class="muted">A new commit undoes “{commit.message || "this commit"}”. Later commits stay.</p>
      <ErrorBox error={preview.error ?? error} />
      {preview.loading && <Loading what="Trying the revert" />}
      {nothing && <p class="note">There is nothing to revert: the branch has none of these changes.</p>}
      {conflicts.length > 0 && <Conflicts conflicts={conflicts} choices={choices} onChange={setChoices} ours={`${branch} now`} theirs="the state before" />}
      {preview.value && !nothing && (
        <form
          class="merge-form"
          onSubmit={(event) => {
            event.preventDefault();
            void revert();
          }}
        >
          <label class="field">
            <span class="field-label">Message</span>
            <input value={message} onInput={(event) => setMessage(event.currentTarget.value)} />
          </label>
          <div class="row">
            <Button kind="danger" type="submit" id="revert" disabled={busy || !complete}>{busy ? "Reverting…" : "Revert"}</Button>
            <Button kind="quiet" onClick={onClose}>Cancel</Button>
          </div>
        </form>
      )}
    </Dialog>
  );
}
