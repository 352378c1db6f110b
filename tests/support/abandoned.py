"""Graphs on which a bulk writer has been abandoned at a chosen point, and how such a point is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omnigraph.graph.recovery.intents import Intent, Intents
from omnigraph.graph.repository import Repository
from omnigraph.store.manifest.records import RecoveryOutcome
from omnigraph.store.objects.object_store import ObjectStore
from tests.support.crash import copy_graph, frozen, position, run_traced
from tests.support.workload import SIDE, Task, change, pairs, write

Changes = Sequence[str]
# How the change begins that makes a commit visible.
SWAP: Final = "link __manifest/_versions/"


@dataclass(frozen=True, slots=True)
class Plight:
    """How a bulk writer ended, and what must become of its work."""

    kind: str
    outcome: RecoveryOutcome | None
    visible: bool


PLIGHTS: Final[dict[str, Plight]] = {
    "before-confirming": Plight("bulk", "discarded", visible=False),
    "after-confirming": Plight("bulk", "rolled_forward", visible=True),
    "after-publishing": Plight("bulk", None, visible=True),
    "while-tidying": Plight("bulk", None, visible=True),
    "overtaken": Plight("bulk", "discarded", visible=False),
    "orphaned-before-confirming": Plight("bulk-on-a-branch", "orphaned", visible=False),
    "orphaned": Plight("bulk-on-a-branch", "orphaned", visible=False),
}


def swap_of(changes: Changes) -> int:
    """The number of the change that makes a commit visible."""
    return position(changes, starts=SWAP)


def outcome_of(changes: Changes) -> int:
    """The number of the change by which an owner claims the right to publish; it has confirmed by then."""
    return position(changes, starts="link __recovery/", holds=".outcome")


def abandon(plight: str, template: Path, target: Path, changes: Changes) -> str:
    """A copy of a graph with a dead bulk writer; `changes` are those of a whole run of its kind."""
    uri = copy_graph(template, target)
    task = Task(PLIGHTS[plight].kind, uri)
    cuts = {
        "before-confirming": outcome_of(changes) - 1,
        "after-confirming": swap_of(changes),
        "after-publishing": swap_of(changes) + 1,
        "while-tidying": position(changes, starts="unlink __recovery/", holds=".lease"),
    }
    if plight in cuts:
        assert run_traced(task, cuts[plight]).killed
        return uri
    at = outcome_of(changes) - (1 if plight == "orphaned-before-confirming" else 0)
    with frozen(task, at) as writer:
        assert writer.change is not None
        graph = Repository.open(uri)
        if plight == "overtaken":
            write(graph, change(insert=pairs(120)), actor="rival")
        else:
            graph.delete_branch(SIDE)
        graph.close()
        writer.kill()
    return uri


def pending_intent(uri: str) -> Intent | None:
    """The intent that a writer has left, or still keeps."""
    intents = Intents(ObjectStore.open(uri))
    found = [item for item in map(intents.read, intents.pending().ids) if item is not None]
    assert len(found) <= 1
    return found[0] if found else None


def is_published(uri: str, intent: Intent) -> bool:
    """Whether the commit that an intent plans is in the log."""
    if intent.plan is None:
        return False
    graph = Repository.open(uri, mode="r")
    found = graph.manifest.find_commit(graph.manifest.view, intent.plan.commit_id)
    graph.close()
    return found is not None
