"""A `write()` that fails, as on a full disk, never leads to an acknowledged commit that cannot be read.

pylance 14 does not report that the last `write()` of a local file failed. The sweep lets every write fail, one at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.faults.conftest import Cuts, wanted_cuts
from tests.support.crash import Run, copy_graph, run_with_failed_write
from tests.support.workload import KINDS, Setting, State, Task, after_all, check_invariants, look

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(1_800)]

EVERY = [kind for kind in KINDS if kind != "heal"]
SAMPLE = ["append", "delete", "bulk"]


@pytest.mark.parametrize("kind", SAMPLE if wanted_cuts() == "sample" else EVERY)
def test_write_call_that_fails_leaves_the_state_before_or_the_acknowledged_state(
    kind: str, tmp_path: Path, settings: Callable[[Setting], Path], cuts: Cuts
) -> None:
    template = settings(KINDS[kind].setting)
    uri = copy_graph(template, tmp_path / "graph")
    before = look(uri)
    whole = run_with_failed_write(Task(kind, uri))
    assert whole.acknowledged is not None, whole.lines
    after = look(uri)
    assert before is not None
    assert after is not None
    last = last_writes(whole.changes)
    for at in cuts.chosen(whole.changes, sample=len(last), including=last):
        uri = copy_graph(template, tmp_path / "graph")
        run = run_with_failed_write(Task(kind, uri), at)
        with cuts.watching(at, whole.changes[at - 1]):
            check_failed_write(kind, uri, run, before, after)
    cuts.report()


def check_failed_write(kind: str, uri: str, run: Run, before: State, after: State) -> None:
    """Everything that must hold after a write of which one call failed."""
    assert run.acknowledged is not None or run.refused is not None, f"the writer ended with {run.code}"
    after = after_all(kind, uri, before, after)
    acknowledged = [run.acknowledged] if run.acknowledged else []
    found = check_invariants(uri, acknowledged=acknowledged, lease_seconds=0)
    assert found.state in (before, after), f"{found.state} is neither {before} nor {after}"
    if run.acknowledged is not None:
        assert found.state == after, "the acknowledged state is not there"


def last_writes(writes: Sequence[str]) -> list[int]:
    """The number of the last write to one file of each folder: data, transactions, versions, indexes, deletions."""
    by_file = {write.split(" ", 1)[1]: number for number, write in enumerate(writes, start=1)}
    by_folder = {str(Path(file).parent): number for file, number in by_file.items()}
    return sorted(by_folder.values())
