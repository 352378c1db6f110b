"""Upkeep in the background: what it removes and keeps, when it runs, and that no write notices it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput
from omnigraph.graph.recovery.leases import Lease
from omnigraph.graph.repository import Repository
from omnigraph.maintain import commit_memory, thinning, upkeep, upkeep_tables, version_memory
from omnigraph.maintain.collector_memory import WorkStopped
from omnigraph.maintain.retention import micros
from omnigraph.maintain.settings import change_settings
from omnigraph.maintain.upkeep import Upkeep
from omnigraph.maintain.upkeep_state import KEY, UpkeepClaim, UpkeepState
from omnigraph.store.manifest import row_files
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import CommitRecord
from omnigraph.store.tables.table_files import NeededFiles, TableFiles
from tests.maintain.graphs import (
    CITY,
    RECLAIMED,
    change,
    history,
    new_graph,
    overwrite,
    reopened,
    rows_at,
    table_files,
)
from tests.support.places import fresh_memory
from tests.support.upkeep import perform_upkeep, without_minimum
from tests.support.waiting import HANG, wait_until
from tests.support.workers import ROOT

SCHEMA = "node City { name: String @key  size: I64? }"
ADD = "query add($n: String) { insert City { name: $n } }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Repository]:
    made = new_graph(str(tmp_path / "g"))
    yield made
    made.close()


def readable(graph: Repository) -> set[str]:
    """The commits that can be read, without the first one, which has no data."""
    fresh = reopened(graph)
    made = [item for item in history(fresh).values() if item.parent is not None]
    return {item.id for item in made if rows_at(fresh, item) != RECLAIMED}


class TestPass:
    def test_pass_removes_states_beyond_the_policy_and_keeps_the_others(self, graph: Repository) -> None:
        made = [overwrite(graph, f"p{number}") for number in range(8)]
        expected = {item.id: rows_at(graph, item) for item in made}
        report = perform_upkeep(graph, keep=3)
        assert report is not None
        assert report.files_removed > 0
        assert readable(graph) == {item.id for item in made[-3:]}
        for item in made[-3:]:
            assert rows_at(reopened(graph), item) == expected[item.id]
        again = perform_upkeep(graph, keep=3)
        assert again is not None
        assert again.files_removed == 0

    def test_pass_keeps_the_thinned_states_and_continues_from_the_stored_ones(
        self, graph: Repository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        week = timedelta(days=7)
        # Every commit is the last one of its "minute".
        monkeypatch.setattr(thinning, "_MINUTE", 1)
        made = [overwrite(graph, f"p{number}") for number in range(4)]
        perform_upkeep(graph, keep=1, thinned=week)
        assert readable(graph) == {item.id for item in made}
        made += [overwrite(graph, f"q{number}") for number in range(4)]
        perform_upkeep(graph, keep=1, thinned=week)
        assert readable(graph) == {item.id for item in made}
        state = UpkeepState.from_bytes(graph.objects.get(KEY).data)
        assert {id_ for item in state.thinned.values() for id_, _ in item.kept} >= {item.id for item in made}
        monkeypatch.setattr(thinning, "_MINUTE", micros(timedelta(hours=1)))
        perform_upkeep(graph, keep=1, thinned=week)
        assert made[-1].id in readable(graph)
        assert len(readable(graph)) <= 2

    def test_pass_keeps_heads_and_merge_bases_of_branches_that_grow(self, graph: Repository) -> None:
        base = overwrite(graph, "base")
        graph.create_branch("side")
        work = Upkeep(graph, every=1)
        with without_minimum():
            change_settings(graph, retention={"keep": 1, "older_than": "0s", "thinned": "0s"})
            for number in range(3):
                ours = overwrite(graph, f"m{number}")
                theirs = overwrite(graph, f"s{number}", branch="side")
                work.run_pass()
                assert readable(graph) == {base.id, ours.id, theirs.id}
        work.close()

    def test_pass_reads_only_commits_and_versions_since_the_last_one(
        self, graph: Repository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Commits are found one by one, as in a long history.
        monkeypatch.setattr(row_files, "_CACHED_CHARACTERS", 0)
        read = list[tuple[str, object]]()
        find, describe = Manifest.find_commit, TableFiles.needed_by

        def find_counted(self: Manifest, view: ManifestView, id_: str) -> CommitRecord | None:
            read.append(("commit", id_))
            return find(self, view, id_)

        def describe_counted(self: TableFiles, path: str, version: int) -> NeededFiles:
            read.append((path, version))
            return describe(self, path, version)

        for branch in ("a", "b", "c"):
            graph.create_branch(branch)
            for number in range(6):
                overwrite(graph, f"{branch}{number}", branch=branch)
        work = Upkeep(graph, every=1)
        with without_minimum():
            change_settings(graph, retention={"keep": 4, "older_than": "0s", "thinned": "0s"})
            work.run_pass()
            monkeypatch.setattr(Manifest, "find_commit", find_counted)
            monkeypatch.setattr(TableFiles, "needed_by", describe_counted)
            new = [overwrite(graph, f"new{number}", branch="b") for number in range(3)]
            read.clear()
            work.run_pass()
        versions = {(pin.path, pin.version) for item in new for pin in item.tables.values()}
        described = [item for item in read if item[0] != "commit"]
        assert len(described) == len(set(described)) == len(new)
        assert set(described) <= versions
        # The head of the last pass and the commits after it, but not those that were retained then.
        looked_up = [item for item in read if item[0] == "commit"]
        assert len(looked_up) == len(set(looked_up)) <= len(new) + 1
        work.close()

    def test_memory_after_a_pass_holds_only_retained_states(self, graph: Repository) -> None:
        work = Upkeep(graph, every=1)
        sizes = set[tuple[int, int]]()
        with without_minimum():
            change_settings(graph, retention={"keep": 3, "older_than": "0s", "thinned": "0s"})
            for number in range(8):
                overwrite(graph, f"p{number}")
                overwrite(graph, f"q{number}")
                work.run_pass()
                memory = work._memory
                assert memory is not None
                sizes.add((len(memory.versions), len(memory.commits.kept)))
        # Three states of each of two tables at most, with their empty versions, and the commits below the head.
        assert max(versions for versions, _ in sizes) <= 8
        assert {commits for _, commits in sizes} == {2}
        work.close()

    def test_pass_with_full_memory_removes_the_same(
        self, graph: Repository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(commit_memory, "_MAX_COMMITS", 2)
        monkeypatch.setattr(version_memory, "_MAX_FILES", 3)
        work = Upkeep(graph, every=1)
        made = []
        with without_minimum():
            change_settings(graph, retention={"keep": 4, "older_than": "0s", "thinned": "0s"})
            for number in range(6):
                made += [overwrite(graph, f"p{number}"), overwrite(graph, f"q{number}")]
                work.run_pass()
                assert readable(graph) == {item.id for item in made[-4:]}
        work.close()

    def test_pass_with_forever_removes_nothing(self, graph: Repository) -> None:
        for number in range(3):
            overwrite(graph, f"p{number}")
        change_settings(graph, retention="forever")
        before = table_files(graph)
        report = Upkeep(graph, every=1).run_pass()
        assert report is not None
        assert report.files_removed == 0
        assert table_files(graph) == before

    def test_pass_removes_at_most_its_limit_of_files_and_the_next_continues(
        self, graph: Repository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = [overwrite(graph, f"p{number}") for number in range(6)]
        monkeypatch.setattr(upkeep, "MAX_FILES", 4)
        removed: list[int] = []
        while not removed or removed[-1]:
            report = perform_upkeep(graph, keep=1)
            assert report is not None
            assert rows_at(reopened(graph), made[-1]) != RECLAIMED
            removed.append(report.files_removed)
        assert max(removed) == 4
        assert len(removed) > 3
        assert readable(graph) == {made[-1].id}

    def test_pass_keeps_idempotency_keys_of_the_last_day(self, graph: Repository) -> None:
        for key, hours in (("aa", 23), ("bb", 25)):
            graph.objects.put(f"__idempotency/{key}.json", b"{}")
            moment = time.time() - hours * 3600
            os.utime(Path(graph.location.path) / "__idempotency" / f"{key}.json", (moment, moment))
        overwrite(graph, "p")
        perform_upkeep(graph, keep=1)
        assert [item.key for item in graph.objects.list("__idempotency")] == ["__idempotency/aa.json"]

    def test_pass_optimizes_a_table_with_many_rows_without_index(
        self, graph: Repository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(upkeep_tables, "MIN_UNINDEXED_ROWS", 16)
        work = Upkeep(graph, every=1, finish=True)
        change(graph, *(f"p{number}" for number in range(20)))
        change(graph, "c", key=CITY)
        work.notice_commit("main")
        work.close()
        assert graph.head().commit.operation == "optimize"
        assert graph.head().commit.message == "automatic upkeep"
        second = Upkeep(graph, every=1, finish=True)
        last = change(graph, "another")
        second.notice_commit("main")
        second.close()
        assert graph.head().commit.id == last.id


class TestClaim:
    def test_pass_is_left_to_the_process_that_holds_the_claim(self, graph: Repository) -> None:
        overwrite(graph, "p")
        claim = UpkeepClaim.acquire(graph.objects, "g", 10)
        assert isinstance(claim, UpkeepClaim)
        assert Upkeep(graph, every=1).run_pass() is None
        claim.release(UpkeepState())
        assert Upkeep(graph, every=1).run_pass() is not None

    def test_claim_of_a_process_that_has_ended_is_taken_over(self, graph: Repository) -> None:
        lease = Lease.new("upkeep", "g")
        assert lease.owner is not None
        dead = Lease(lease.id, "upkeep", "g", type(lease.owner)(lease.owner.machine, 2**22 + 1, "0"), 0, 0)
        graph.objects.put(KEY, UpkeepState(lease=dead).to_bytes())
        assert isinstance(UpkeepClaim.acquire(graph.objects, "g", 10), UpkeepClaim)

    def test_claim_before_the_next_version_is_due_returns_the_state(self, graph: Repository) -> None:
        graph.objects.put(KEY, UpkeepState(next_version=100).to_bytes())
        assert UpkeepClaim.acquire(graph.objects, "g", 99) == UpkeepState(next_version=100)
        assert isinstance(UpkeepClaim.acquire(graph.objects, "g", 100), UpkeepClaim)

    @pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"next_version": "x"}'])
    def test_state_that_cannot_be_parsed_is_replaced(self, graph: Repository, data: bytes) -> None:
        graph.objects.put(KEY, data)
        overwrite(graph, "p")
        assert Upkeep(graph, every=1).run_pass() is not None
        assert UpkeepState.from_bytes(graph.objects.get(KEY).data).next_version > 0

    def test_claim_that_was_taken_over_keeps_the_state_of_the_other(self, graph: Repository) -> None:
        claim = UpkeepClaim.acquire(graph.objects, "g", 10)
        assert isinstance(claim, UpkeepClaim)
        graph.objects.put(KEY, UpkeepState(next_version=77).to_bytes())
        claim.release(UpkeepState(next_version=5))
        assert UpkeepState.from_bytes(graph.objects.get(KEY).data).next_version == 77


class TestBackground:
    def test_commits_start_a_pass_and_close_ends_its_thread(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Upkeep.__init__, "__kwdefaults__", {"every": 4, "finish": True})
        with og.init(str(tmp_path / "g"), schema=SCHEMA, durability="os", upkeep="auto") as g:
            for number in range(8):
                g.mutate(ADD, {"n": f"c{number}"})
        assert (tmp_path / "g" / KEY).exists()
        assert not [item for item in threading.enumerate() if item.name.startswith("omnigraph-upkeep")]

    def test_upkeep_off_never_starts(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Upkeep.__init__, "__kwdefaults__", {"every": 1, "finish": True})
        for number, mode in enumerate(["off", None]):
            uri = str(tmp_path / f"g{number}")
            with og.init(uri, schema=SCHEMA, durability="os", upkeep=mode) as g:  # type: ignore[arg-type]
                g.mutate(ADD, {"n": "c"})
            assert not (tmp_path / f"g{number}" / KEY).exists()

    def test_upkeep_with_an_unknown_mode_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(InvalidInput, match="upkeep: expected 'auto' or 'off', got 'on'"):
            og.init(fresh_memory(), schema=SCHEMA, upkeep="on")  # type: ignore[arg-type]
        monkeypatch.setenv("OMNIGRAPH_UPKEEP", "no")
        with pytest.raises(InvalidInput, match="OMNIGRAPH_UPKEEP: expected 'auto' or 'off'"):
            og.init(fresh_memory(), schema=SCHEMA)

    def test_pass_that_fails_is_reported_once_and_never_fails_a_write(self, graph: Repository) -> None:
        # The state of upkeep cannot be written below a file.
        (Path(graph.location.path) / "__upkeep").write_text("in the way")
        graph.background = work = Upkeep(graph, every=1)
        for number in range(6):
            change(graph, f"p{number}")
            wait_until(lambda: work._pass is not None and work._pass.done())
        work.close()
        (warning,) = [text for text in graph.warnings if "upkeep" in text]
        assert "is tried again later" in warning
        assert len(history(graph)) == 7

    def test_passes_of_a_handle_run_in_one_thread(
        self, graph: Repository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        threads: list[threading.Thread] = []
        monkeypatch.setattr(Upkeep, "run_pass", lambda _: threads.append(threading.current_thread()))
        work = Upkeep(graph, every=1)
        overwrite(graph, "p")
        for number in range(1, 4):
            work.notice_commit("main")
            wait_until(lambda: work._pass is not None and work._pass.done())
            assert len(threads) == number
        assert len(set(threads)) == 1
        assert sum(item.name.startswith("omnigraph-upkeep-pass") for item in threading.enumerate()) == 1
        work.close()
        assert not _is_running()

    def test_close_stops_a_pass_that_is_running(self, graph: Repository) -> None:
        work = Upkeep(graph, every=1)
        for number in range(40):
            overwrite(graph, f"p{number}")
        graph.background = work
        graph.background.notice_commit("main")
        graph.close()
        assert not _is_running()

    def test_pass_of_a_closed_handle_removes_nothing(self, graph: Repository) -> None:
        for number in range(4):
            overwrite(graph, f"p{number}")
        before = table_files(graph)
        work = Upkeep(graph, every=1)
        work.close()
        with without_minimum():
            change_settings(graph, retention={"keep": 1, "older_than": "0s", "thinned": "0s"})
            with pytest.raises(WorkStopped):
                work.run_pass()
        assert table_files(graph) == before
        # The claim was given back.
        assert isinstance(UpkeepClaim.acquire(graph.objects, "g", 10**6), UpkeepClaim)

    def test_process_that_ends_without_close_leaves_no_thread_behind(self, tmp_path: Path) -> None:
        code = (
            "import omnigraph as og\n"
            "from omnigraph.maintain.upkeep import Upkeep\n"
            "Upkeep.__init__.__kwdefaults__ = {'every': 3, 'finish': False}\n"
            f"g = og.init({str(tmp_path / 'g')!r}, schema={SCHEMA!r}, durability='os', upkeep='auto')\n"
            f"for n in range(9): g.mutate({ADD!r}, {{'n': f'c{{n}}'}})\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=HANG, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert og.open(str(tmp_path / "g")).get("City", "c8") is not None

    def test_handles_that_cannot_write_or_are_in_memory_have_no_upkeep(self, tmp_path: Path) -> None:
        og.init(str(tmp_path / "g"), schema=SCHEMA, durability="os").close()
        for handle in (
            og.open(str(tmp_path / "g"), mode="r", upkeep="auto"),
            og.init(fresh_memory(), schema=SCHEMA, upkeep="auto"),
        ):
            assert handle._repository.background is None

    def test_watch_performs_upkeep_after_commits_of_another_handle(self, graph: Repository) -> None:
        other = Repository.open(graph.location.uri, durability="os")
        work = Upkeep(other, every=2)
        work.watch(0.01)
        for number in range(4):
            change(graph, f"p{number}")
        wait_until(lambda: (Path(graph.location.path) / KEY).exists())
        work.close()
        assert not _is_running()


def test_two_handles_that_perform_upkeep_at_once_lose_nothing(graph: Repository, tmp_path: Path) -> None:
    made = [overwrite(graph, f"p{number}") for number in range(12)]
    expected = rows_at(graph, made[-1])
    with without_minimum():
        change_settings(graph, retention={"keep": 2, "older_than": "0s", "thinned": "0s"})
        shutil.rmtree(tmp_path / "g" / "__upkeep", ignore_errors=True)
        passes = [Upkeep(Repository.open(graph.location.uri, durability="os"), every=1) for _ in range(3)]
        threads = [threading.Thread(target=item.run_pass) for item in passes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert readable(graph) == {made[-1].id, made[-2].id}
    assert rows_at(reopened(graph), made[-1]) == expected


def _is_running() -> bool:
    time.sleep(0)
    return any(item.name.startswith("omnigraph-upkeep-pass") for item in threading.enumerate())
