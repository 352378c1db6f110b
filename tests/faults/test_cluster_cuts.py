"""Crash cuts of the cluster commands, on disk and in a bucket: the next run completes what the killed one began."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cluster.applying.apply import apply
from omnigraph.cluster.ledger.state import STATE_KEY, parse_state
from omnigraph.cluster.serving.applied_revision import read_applied_revision
from omnigraph.errors import NotFound
from tests.cluster_control.cluster_files import ClusterFolder, codes
from tests.faults.conftest import Cuts, wanted_cuts
from tests.support.cluster_commands import (
    COMMANDS,
    ClusterTask,
    copy_cluster,
    look_at_cluster,
    prepare,
    remove_left_lock,
)
from tests.support.crash import position, run_traced
from tests.support.s3 import Bucket, running_server
from tests.support.s3_cuts import run_cut, run_recorded

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(3_600)]

EVERY = tuple(COMMANDS)
SAMPLE = ("first-apply", "apply")
BUCKET = "company"
ROOT = f"s3://{BUCKET}/production"


@pytest.mark.parametrize("command", SAMPLE if wanted_cuts() == "sample" else EVERY)
def test_command_that_dies_is_completed_by_the_next_run(command: str, tmp_path: Path, cuts: Cuts) -> None:
    template = tmp_path / "template"
    prepare(command, template)
    _check_disk(command, template, tmp_path, cuts, sample=2)


def test_recovery_that_dies_is_completed_by_the_next_run(tmp_path: Path, cuts: Cuts) -> None:
    template = tmp_path / "template"
    prepare("apply", template)
    abandon(template, tmp_path / "abandoned")
    _check_disk("apply", tmp_path / "abandoned", tmp_path, cuts)


def _check_disk(command: str, template: Path, tmp_path: Path, cuts: Cuts, sample: int = 1) -> None:
    cluster = copy_cluster(template, tmp_path / "cluster")
    before = read_ledger(cluster)
    whole = run_traced(ClusterTask(command, str(cluster.path)))
    assert whole.acknowledged is not None, whole.lines
    after = look_at_cluster(cluster)
    swaps = [at for at, change in enumerate(whole.changes, start=1) if is_swap(change)]
    # Directly before the ledger is written, and directly after it.
    around = [at for swap in swaps[-1:] for at in (swap, swap + 1)]
    for at in cuts.chosen(whole.changes, sample, including=around):
        cluster = copy_cluster(template, tmp_path / "cluster")
        run = run_traced(ClusterTask(command, str(cluster.path)), at)
        with cuts.watching(at, run.cut):
            check_cut(command, cluster, before, after)
    cuts.report()


@pytest.mark.parametrize("command", ("apply",) if wanted_cuts() == "sample" else EVERY)
def test_command_that_dies_at_a_request_is_completed_by_the_next_run(
    command: str, tmp_path: Path, cuts: Cuts
) -> None:
    template = prepare_remote(command, tmp_path)
    with template.opened() as (cluster, bucket):
        before = read_ledger(cluster)
        log = run_recorded(ClusterTask(command, str(cluster.path), cluster.options), bucket)
        after = look_at_cluster(cluster)
    swaps = [
        at for at, item in enumerate(log.requests, start=1) if item.method == "PUT" and STATE_KEY in item.key
    ]
    numbers = cuts.chosen([str(item) for item in log.requests], 1, including=swaps[-1:])
    for at in numbers:
        for applied in (False, True):
            cut = f"{log.requests[at - 1]} (applied: {applied})"
            with template.opened() as (cluster, bucket), cuts.watching(at, cut):
                run_cut(ClusterTask(command, str(cluster.path), cluster.options), bucket, at, applied=applied)
                check_cut(command, cluster, before, after)
    cuts.report()


# --- what must hold ----------------------------------------------------------------------------------------


def check_cut(command: str, cluster: ClusterFolder, before: bytes | None, after: dict[str, Any]) -> None:
    """Check what a killed command has left, and that the same command completes it."""
    now = read_ledger(cluster)
    is_written = now != before
    if now is not None:
        revision = 0 if before is None else parse_state(before).state_revision
        assert parse_state(now).state_revision == revision + is_written
        if parse_state(now).graphs and command != "refresh":
            # A server can start with it, unless a payload is lost. A graph that was being changed is quarantined.
            read_applied_revision(cluster.root, cluster.options)
    if command != "force-unlock":
        remove_left_lock(cluster)
    report = ClusterTask(command, str(cluster.path), cluster.options).run()
    allowed = COMMANDS[command].repeated
    assert report.ok or codes(report) == list(allowed), report.diagnostics
    found = look_at_cluster(cluster)
    if command == "approve":
        # A killed command may have written its approval, and the next one writes another.
        assert found.pop("approvals") in (1, 2)
        after = {name: value for name, value in after.items() if name != "approvals"}
    assert found == after
    again = apply(cluster.path, cluster.options)
    assert again.ok, again.diagnostics
    assert not apply(cluster.path, cluster.options).state_written
    assert look_at_cluster(cluster)["approvals"] == 0


def read_ledger(cluster: ClusterFolder) -> bytes | None:
    """Return the ledger as it is stored."""
    try:
        return cluster.storage.objects.get(STATE_KEY).data
    except NotFound:
        return None


def is_swap(change: str) -> bool:
    """Return whether a change on disk writes the ledger."""
    return change.endswith(STATE_KEY)


# --- clusters ----------------------------------------------------------------------------------------------


def abandon(template: Path, target: Path) -> None:
    """Copy a cluster, and kill its apply directly before it writes the ledger."""
    task = ClusterTask("apply", str(target))
    copy_cluster(template, target)
    at = position(run_traced(task).changes, starts="rename", holds=STATE_KEY)
    cluster = copy_cluster(template, target)
    assert run_traced(task, at).killed
    remove_left_lock(cluster)


@dataclass(frozen=True)
class RemoteTemplate:
    """A cluster whose storage is the bucket of a server of its own, so that its address is always the same."""

    path: Path
    objects: dict[str, bytes]

    @contextmanager
    def opened(self) -> Iterator[tuple[ClusterFolder, Bucket]]:
        """Return a copy of the cluster and its bucket."""
        with running_server() as server:
            server.objects.make_bucket(BUCKET)
            for key, data in self.objects.items():
                server.objects.put(BUCKET, key, data)
            bucket = Bucket(server, BUCKET)
            yield ClusterFolder(self.path, bucket.options, ROOT), bucket


def prepare_remote(command: str, path: Path) -> RemoteTemplate:
    """Return the cluster that a command starts from."""
    with running_server() as server:
        server.objects.make_bucket(BUCKET)
        bucket = Bucket(server, BUCKET)
        prepare(command, path / "company", ROOT, bucket.options)
        return RemoteTemplate(path / "company", {key: server.objects.get(BUCKET, key) for key in bucket.keys})
