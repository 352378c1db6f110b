// Graph, branch and moment of the current view, and the slider through the commits of the branch.
import { useMemo, useState } from "preact/hooks";
import { get, graphPath } from "../lib/api";
import { useData, useDebounced, useSession } from "../lib/data";
import { formatAge, formatTime, shortId } from "../lib/format";
import { branchOf, navigate } from "../lib/route";
import type { Commit } from "../lib/types";
import { Button, Icon } from "./ui";

const COMMITS = 200;

export function MomentBar({ graphs }: { graphs: string[] }) {
  const { route, branches } = useSession();
  const [travelling, setTravelling] = useState(false);
  const branch = branchOf(route);
  const at = route.params.at ?? "";
  const ids = graphs.includes(route.graph) || !route.graph ? graphs : [...graphs, route.graph];
  const names = branches.includes(branch) ? branches : [...branches, branch];
  return (
    <div class="moment">
      <select aria-label="Graph" value={route.graph} onChange={(event) => navigate({ graph: event.currentTarget.value })}>
        {ids.map((id) => <option key={id} value={id}>{id}</option>)}
      </select>
      <span class="picker">
        <Icon name="branch" />
        <select
          id="branch-picker"
          aria-label="Branch"
          value={branch}
          onChange={(event) => navigate({ params: { branch: event.currentTarget.value, at: "" } })}
        >
          {names.map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
      </span>
      <Button
        kind={at ? "primary" : "quiet"}
        icon="clock"
        aria-expanded={travelling}
        aria-label={at ? `Moment ${at}` : "Moment: now"}
        title="Time travel"
        onClick={() => setTravelling(!travelling)}
      >
        <span class="moment-label">{at ? shortId(at) : "now"}</span>
      </Button>
      {travelling && <TimeTravel graph={route.graph} branch={branch} at={at} onClose={() => setTravelling(false)} />}
    </div>
  );
}

function TimeTravel({ graph, branch, at, onClose }: { graph: string; branch: string; at: string; onClose: () => void }) {
  const loaded = useData(
    (signal) => get<{ commits: Commit[] }>(graphPath(graph, "/commits"), { branch, limit: COMMITS }, signal),
    [graph, branch],
  );
  const commits = useMemo(() => [...(loaded.value?.commits ?? [])].reverse(), [loaded.value]);
  const chosen = at ? commits.findIndex((item) => item.graph_commit_id === at) : commits.length - 1;
  const [place, setPlace] = useState<number | null>(null);
  const shown = place ?? (chosen < 0 ? commits.length - 1 : chosen);
  const commit = commits[shown];
  const go = useDebounced((number: number) => {
    const isHead = number === commits.length - 1;
    navigate({ params: { at: isHead ? "" : commits[number].graph_commit_id } });
  }, 200);
  return (
    <div class="travel" role="group" aria-label="Time travel">
      <label class="field">
        <span class="field-label">
          Commit {commits.length ? shown + 1 : 0} of {commits.length} on {branch}
        </span>
        <input
          type="range"
          min={0}
          max={Math.max(0, commits.length - 1)}
          value={shown}
          disabled={commits.length < 2}
          aria-valuetext={commit ? `${commit.message ?? "commit"}, ${formatTime(commit.created_at)}` : ""}
          onInput={(event) => {
            const number = Number(event.currentTarget.value);
            setPlace(number);
            go(number);
          }}
        />
      </label>
      {commit && (
        <p class="travel-commit">
          <strong>{commit.message || "No message"}</strong>
          <span class="muted">
            {formatTime(commit.created_at)} · {formatAge(commit.created_at)} · {commit.actor_id ?? "no actor"} · <code>{shortId(commit.graph_commit_id)}</code>
          </span>
        </p>
      )}
      <div class="row">
        <Button onClick={() => (setPlace(commits.length - 1), navigate({ params: { at: "" } }))} disabled={!at}>Now</Button>
        <Button kind="quiet" onClick={onClose}>Close</Button>
      </div>
    </div>
  );
}
