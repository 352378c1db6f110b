"""Cuts and faults of a migration and of `verify --record`: a graph of format 1 keeps its rows and can be upgraded.

A digest that is recorded is the digest of the file, whatever happened to the process that recorded it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pytest

import omnigraph as og
from omnigraph.errors import OmnigraphError
from omnigraph.graph.format_version import CURRENT as CURRENT_FORMAT
from omnigraph.graph.open_storage import connect
from omnigraph.maintain.verification.verify import verify
from omnigraph.maintain.verification.verify_options import VerifyOptions
from omnigraph.store.file_digests import digest_file
from tests.faults.conftest import Cuts, wanted_cuts
from tests.faults.test_storage_faults import chosen_faults, failed_request, one_attempt
from tests.fixtures.formats.build import rows_of
from tests.support.crash import copy_graph, run_traced
from tests.support.s3 import Bucket
from tests.support.s3_cuts import run_cut, run_recorded
from tests.support.s3_fixtures import s3, s3_server
from tests.support.s3_graphs import digest_bucket, download_graph, upload_graph
from tests.support.s3_seam import How, Log, Recorded
from tests.support.upgrades import UPGRADES, Upgraded, observe_upgrade, prepare_upgrade
from tests.support.workload import Task

__all__ = ["s3", "s3_server"]

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(3_600)]

# A migration is one swap of the registry, as the creation of a branch is.
KINDS: Final = [pytest.param(name, marks=pytest.mark.long if name == "migrate" else ()) for name in UPGRADES]


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def template(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph that an upgrade starts from. It is shared; copy it before use."""
    return prepare_upgrade(kind, tmp_path_factory.mktemp("upgrade"))


def check_undisturbed(kind: str, before: Upgraded, after: Upgraded) -> None:
    """Check the effect of an upgrade that was not cut off."""
    assert after.rows == before.rows
    if kind == "migrate":
        assert (before.format, after.format) == (1, CURRENT_FORMAT)
        assert after.digests == before.digests
    else:
        assert not before.digests
        assert len(after.digests) > 20


def check(kind: str, uri: str, before: Upgraded, after: Upgraded) -> None:
    """Check the graph after a cut, the next run, and a write after that."""
    found = observe_upgrade(uri)
    # Each step of a migration is one swap, and the state after each step is complete.
    steps = [replace(before, format=number) for number in range(before.format, after.format)]
    assert found in (*steps, before, after), f"{len(found.digests)} digests, format {found.format}"
    UPGRADES[kind](uri, {})
    assert observe_upgrade(uri) == after
    _, root, objects = connect(uri, {}, "os")
    report = verify(root, objects, VerifyOptions(all_commits=True))
    assert report.ok, report.damage
    with og.open(uri, durability="os") as graph:
        graph.mutate('query add() { insert Firm { name: "After" } }')
        assert {"name": "After"} in rows_of(graph)["firms"]


def test_upgrade_killed_before_any_change_on_disk_leaves_the_state_before_or_after(
    kind: str, template: Path, tmp_path: Path, cuts: Cuts
) -> None:
    uri = copy_graph(template, tmp_path / "graph")
    before = observe_upgrade(uri)
    whole = run_traced(Task(kind, uri))
    assert whole.acknowledged, whole.lines
    after = observe_upgrade(uri)
    check_undisturbed(kind, before, after)
    for (path, name), digest in after.digests.items():
        assert digest_file(Path(uri, path, name), name) == digest
    for at in cuts.chosen(whole.changes):
        uri = copy_graph(template, tmp_path / "graph")
        run = run_traced(Task(kind, uri), at)
        with cuts.watching(at, run.cut):
            if run.acknowledged is not None:
                assert observe_upgrade(uri) == after
            check(kind, uri, before, after)
    cuts.report()


def _writes(request: Recorded) -> bool:
    return request.method not in ("GET", "HEAD")


def _is_distinct(log: Log, at: int) -> bool:
    """Return whether a cut leaves a state of its own: reads in a row change nothing, so one of them is cut."""
    return at == 1 or _writes(log.requests[at - 1]) or _writes(log.requests[at - 2])


@pytest.mark.long
def test_upgrade_killed_at_any_request_leaves_the_state_before_or_after(
    kind: str, template: Path, s3: Bucket, tmp_path: Path, cuts: Cuts
) -> None:
    uri = upload_graph(template, s3, "whole")
    before = observe_upgrade(uri, s3.options)
    log = run_recorded(Task(kind, uri, options=s3.options), s3)
    after = observe_upgrade(uri, s3.options)
    check_undisturbed(kind, before, after)
    for at in filter(partial(_is_distinct, log), cuts.chosen_requests(log)):
        for applied in (False, True) if _writes(log.requests[at - 1]) else (False,):
            cut = f"{log.requests[at - 1]} (applied: {applied})"
            with s3.server.bucket() as bucket, cuts.watching(at, cut):
                uri = upload_graph(template, bucket, "graph")
                task = Task(kind, uri, options=bucket.options)
                if run_cut(task, bucket, at, applied=applied) is not None:
                    assert observe_upgrade(uri, bucket.options) == after
                check(kind, download_graph(bucket, "graph", tmp_path / "cut"), before, after)
    cuts.report()


def _raises(upgrade: Callable[[], object]) -> bool:
    """Return whether an upgrade raises an error of the library."""
    try:
        upgrade()
    except OmnigraphError:
        return True
    return False


@pytest.mark.long
def test_upgrade_of_which_one_request_fails_succeeds_or_raises_and_can_be_repeated(
    kind: str, template: Path, s3: Bucket, tmp_path: Path, cuts: Cuts
) -> None:
    uri = upload_graph(template, s3, "whole")
    before = observe_upgrade(uri, s3.options)
    with s3.seam.recording() as log:
        UPGRADES[kind](uri, s3.options)
    after = observe_upgrade(uri, s3.options)
    requests = enumerate(log.requests, start=1)
    swap = max(at for at, item in requests if item.method == "PUT" and "/__manifest/_versions/" in item.key)
    # The sample is a lost reply to the swap.
    sample: list[tuple[How | int, int]] = [("drop", swap)]
    checked: set[tuple[str, bool]] = set()
    # Nearly all requests read one of many files of the same kind.
    faults = sample if wanted_cuts() == "sample" else chosen_faults(log.requests, of_each_kind=3)
    for how, nth in faults:
        with s3.server.bucket() as bucket, cuts.watching(nth, f"{log.requests[nth - 1]} ({how})"):
            uri = upload_graph(template, bucket, "graph")
            keys = {*bucket.keys}
            with failed_request(bucket, how, nth):
                raised = _raises(lambda: UPGRADES[kind](uri, {**bucket.options, **one_attempt(how)}))  # noqa: B023
            copy = download_graph(bucket, "graph", tmp_path / "failed")
            is_after = observe_upgrade(copy) == after
            assert raised or is_after
            # Only the new files differ between two upgrades that succeed, and their effect is the observed one.
            left = digest_bucket(bucket, without_names_of=keys if is_after else ()), is_after
            if left not in checked:
                check(kind, copy, before, after)
                checked.add(left)
    cuts.report("faults")
