"""The state of pipelines in commits: every commit names the last run of each pipeline.

The state of a pipeline says which input its runs have read. It is part of the commit that has the rows of that
input, so both become visible, are merged and are reverted together. A head holds only the commit id of the last run
of each pipeline, and the row of that commit holds the record of the run. The cost of a commit therefore does not
grow with the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from omnigraph.errors import Conflict

# By the name of a pipeline: the commit of its last run that is expected, and the one that replaces it. None stands
# for no run.
RunChanges: TypeAlias = Mapping[str, tuple[str | None, str | None]]


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """A run of a pipeline that makes a commit.

    `previous` is the commit of the run whose state this run continues, None for a first run. `record` is the state
    after this run and its lineage, as JSON text. `advances` is False if the state is that of the previous run: then
    nothing is committed unless a row changed.
    """

    pipeline: str
    previous: str | None
    record: str
    advances: bool = True


def apply_run_changes(runs: Mapping[str, str], changes: RunChanges) -> dict[str, str]:
    """Return the last runs after changes.

    >>> apply_run_changes({"shop": "C1", "crm": "C2"}, {"shop": ("C1", "C3"), "crm": ("C2", None)})
    {'shop': 'C3'}
    """
    changed = {name: commit for name, (_, commit) in changes.items()}
    return {name: commit for name, commit in {**runs, **changed}.items() if commit is not None}


def find_changed_run(runs: Mapping[str, str], changes: RunChanges) -> str | None:
    """Return the name of a pipeline whose last run is not the expected one, or None."""
    return next((name for name, (expected, _) in changes.items() if runs.get(name) != expected), None)


def merge_runs(base: Mapping[str, str], ours: Mapping[str, str], theirs: Mapping[str, str]) -> RunChanges:
    """Return the changes of our last runs that a three-way merge makes.

    Raises `Conflict` if both sides have another run of a pipeline than the base: both may have read the same input.

    >>> merge_runs({"shop": "C1"}, {"shop": "C1", "crm": "C2"}, {"shop": "C3"})
    {'shop': ('C1', 'C3')}
    """
    changes: dict[str, tuple[str | None, str | None]] = {}
    for name in sorted({*base, *theirs}):
        before, mine, other = base.get(name), ours.get(name), theirs.get(name)
        if other in (before, mine):
            continue
        if mine != before:
            raise run_conflict(name, before, mine)
        changes[name] = (mine, other)
    return changes


def run_conflict(pipeline: str, expected: str | None, actual: str | None) -> Conflict:
    """Return the error for a run that does not continue the last published run of its pipeline."""
    return Conflict(
        f"another run of pipeline '{pipeline}' was published since this run began",
        details={"pipeline": pipeline, "expected": expected, "actual": actual},
        hint="delete the branch of this run and run the pipeline again: it reads the input that is still new",
    )
