"""Two cluster commands at once: one wins, and the other is refused and says why."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from omnigraph.cluster.applying.apply import apply
from omnigraph.cluster.commands import force_unlock, history, status
from omnigraph.cluster.ledger.state import STATE_KEY
from tests.cluster_control.cluster_files import OLDER, ClusterFolder, codes
from tests.support.cluster_commands import ClusterTask, copy_cluster, look_at_cluster, prepare
from tests.support.crash import frozen, position, run_traced, start
from tests.support.s3 import Bucket
from tests.support.s3_fixtures import s3, s3_server
from tests.support.waiting import wait_until

__all__ = ["s3", "s3_server"]

pytestmark = [pytest.mark.faults, pytest.mark.slow]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "cluster"
    prepare("apply", path)
    return path


@pytest.fixture(scope="module")
def swap(template: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """The number of the change with which an undisturbed apply writes the ledger."""
    cluster = copy_cluster(template, tmp_path_factory.mktemp("whole") / "cluster")
    return position(
        run_traced(ClusterTask("apply", str(cluster.path))).changes, starts="rename", holds=STATE_KEY
    )


@pytest.fixture
def cluster(template: Path, tmp_path: Path) -> ClusterFolder:
    return copy_cluster(template, tmp_path / "cluster")


def test_apply_beside_a_running_apply_is_refused_with_its_process(cluster: ClusterFolder, swap: int) -> None:
    with frozen(ClusterTask("apply", str(cluster.path)), swap) as first:
        second = apply(cluster.path, actor="bob")
        assert codes(second) == ["state_lock_held"]
        message = second.diagnostics[0].message
        assert f"process {first.pid}" in message
        assert "force-unlock" in message
        lock = status(cluster.path).to_json()["state_observations"]
        assert (lock["lock_pid"], lock["lock_operation"]) == (first.pid, "apply")
        assert first.resume().acknowledged is not None
    assert look_at_cluster(cluster)["approvals"] == 0
    assert not apply(cluster.path).state_written


def test_paused_apply_whose_lock_was_removed_cannot_overwrite_the_ledger(
    cluster: ClusterFolder, swap: int
) -> None:
    with frozen(ClusterTask("apply", str(cluster.path)), swap - 1) as first:
        held = status(cluster.path).to_json()["state_observations"]["lock_id"]
        assert force_unlock(cluster.path, held).ok
        second = apply(cluster.path, actor="bob")
        assert (second.ok, second.converged) == (True, True)
        after = look_at_cluster(cluster)
        lost = first.resume()
    assert lost.refused == "state_cas_mismatch"
    assert "run the command again" in lost.lines[-1]
    assert look_at_cluster(cluster) == after
    assert history(cluster.path).to_json()["revisions"][0]["actor"] == "bob"


def test_applies_at_once_without_a_lock_write_one_chain_of_revisions(cluster: ClusterFolder) -> None:
    config = cluster.path / "cluster.yaml"
    config.write_text(config.read_text() + "state: { lock: false }\n")
    # The approval is for the configuration with a lock.
    assert apply(cluster.path).ok
    cluster.write("queries/all.gq", OLDER + "// changed\n")
    workers = [start(ClusterTask("apply", str(cluster.path))) for _ in range(3)]
    lines = [worker.communicate()[0].strip() for worker in workers]
    assert "ACK" in lines
    refusals = [line for line in lines if line != "ACK"]
    assert all(line.startswith("REFUSED state_cas_mismatch ") for line in refusals), refusals
    look_at_cluster(cluster)
    assert not apply(cluster.path).state_written


def test_apply_in_a_bucket_beside_another_is_refused_or_loses_the_ledger(tmp_path: Path, s3: Bucket) -> None:
    prepare("apply", tmp_path / "cluster", f"{s3.uri}/company", s3.options)
    cluster = ClusterFolder(tmp_path / "cluster", s3.options, f"{s3.uri}/company")
    with ThreadPoolExecutor(1) as pool, s3.seam.hold(method="PUT", key="__cluster/history/") as pause:
        first = pool.submit(apply, cluster.path, s3.options, actor="ann")
        wait_until(lambda: pause.hits)
        assert codes(apply(cluster.path, s3.options)) == ["state_lock_held"]
        held = status(cluster.path, s3.options).to_json()["state_observations"]["lock_id"]
        assert force_unlock(cluster.path, held, s3.options).ok
        assert apply(cluster.path, s3.options, actor="bob").converged
        pause.released.set()
        assert codes(first.result()) == ["state_cas_mismatch"]
    look_at_cluster(cluster)
    assert history(cluster.path, s3.options).to_json()["revisions"][0]["actor"] == "bob"
