"""Tags: immutable names for commits, exclusive with branches, kept by garbage collection, copies and repairs."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.errors import Conflict, InvalidInput, NotFound, OmnigraphError, StorageError
from omnigraph.graph.repository import Repository
from omnigraph.store.manifest import bucket_entries, name_buckets
from omnigraph.store.manifest.collection_fence import announce_reclaimed
from tests.support.upkeep import perform_upkeep

SCHEMA = "node City { name: String @key  mayor: String? }"
RENAME = 'query set($m: String) { update City set { mayor: $m } where name = "Bern" }'


@pytest.fixture
def graph(tmp_path: Path) -> LocalGraph:
    """A graph with one city, whose mayor changes with every commit."""
    g = og.init(tmp_path / "graph", schema=SCHEMA, durability="os")
    g.load({"City": [{"name": "Bern", "mayor": "m0"}]})
    assert isinstance(g, LocalGraph)
    return g


def mayor(graph: og.Graph, at: str | None = None, branch: str = "main") -> str:
    found = graph.get("City", "Bern", branch=branch, at=at)
    assert found is not None
    return str(found["mayor"])


def repository_of(graph: og.Graph) -> Repository:
    assert isinstance(graph, LocalGraph)
    return graph._repository


def collect(graph: og.Graph) -> None:
    """Collect everything but the heads and what tags keep."""
    graph.cleanup(keep=1, grace="0s", confirm=True)


def test_tag_names_the_state_wherever_a_commit_is_named(graph: LocalGraph) -> None:
    first = graph.commits()[0].id
    tag = graph.tags.create("v1.0", message="first", actor="ana")
    assert (tag.name, tag.commit_id, tag.message, tag.actor) == ("v1.0", first, "first", "ana")
    changed = graph.mutate(RENAME, {"m": "m1"}).commit
    assert changed is not None
    assert (mayor(graph), mayor(graph, "v1.0")) == ("m1", "m0")
    assert graph.snapshot(at="v1.0").commit_id == first
    assert graph.commit("v1.0").id == first
    assert [change.op for change in graph.diff("v1.0", "main")] == ["update"]
    assert graph.branches.create("from-tag", at="v1.0").commit_id == first
    assert mayor(graph, branch="from-tag") == "m0"
    assert [block.cause.graph_commit_id for block in graph.feed(start="after:v1.0").blocks] == [changed.id]
    graph.tags.create("v1.1")
    assert graph.tags.create("copy", at="v1.0").commit_id == first
    assert graph.changes("v1.1").cause.graph_commit_id == changed.id
    graph.revert("v1.1")
    assert mayor(graph) == "m0"
    assert [tag.name for tag in graph.tags.list()] == ["copy", "v1.0", "v1.1"]
    assert [tag.name for tag in graph.tags.list(prefix="v", after="v1.0", limit=5)] == ["v1.1"]


def test_create_tag_that_exists_or_is_a_branch_raises_conflict(graph: LocalGraph) -> None:
    graph.tags.create("v1.0")
    graph.branches.create("dev")
    with pytest.raises(Conflict, match=r"tag 'v1\.0' already exists"):
        graph.tags.create("v1.0")
    with pytest.raises(Conflict, match="'dev' is a branch"):
        graph.tags.create("dev")
    with pytest.raises(Conflict, match=r"'v1\.0' is a tag"):
        graph.branches.create("v1.0")
    graph.tags.delete("v1.0")
    graph.branches.create("v1.0")
    graph.branches.delete("dev")
    assert graph.tags.create("dev", at="v1.0").name == "dev"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "cannot be empty"),
        ("main", "it is a branch"),
        ("01JBZ8Q0000000000000000000", "form of a commit id"),
        ("2026-05-04T12:00Z", "form of a time"),
        ("a/../b", "a segment `.` or `..`"),
        ("HEAD", "reserved"),
        ("main~2", "reserved"),
        ("a\nb", "unprintable"),
        ("a//b", "empty segment"),
    ],
)
def test_create_tag_with_ambiguous_name_is_refused(graph: LocalGraph, name: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        graph.tags.create(name)
    assert graph.tags.list() == []


def test_unknown_tag_is_not_found_with_similar_name(graph: LocalGraph) -> None:
    graph.tags.create("release-1")
    with pytest.raises(NotFound, match="commit 'relase-1' not found") as caught:
        graph.get("City", "Bern", at="relase-1")
    assert caught.value.hint == "did you mean `release-1`?"
    with pytest.raises(NotFound, match="tag 'relase-1' not found"):
        graph.tags.delete("relase-1")
    with pytest.raises(NotFound, match="neither a branch, a tag nor a commit"):
        graph.diff("relase-1", "main")


def test_cleanup_keeps_data_of_tagged_commit_until_tag_is_deleted(graph: LocalGraph) -> None:
    graph.tags.create("kept")
    lost = graph.mutate(RENAME, {"m": "m1"}).commit
    graph.mutate(RENAME, {"m": "m2"})
    collect(graph)
    assert lost is not None
    with pytest.raises(NotFound, match="reclaimed"):
        mayor(graph, lost.id)
    assert mayor(graph, "kept") == "m0"
    with og.open(graph.uri, mode="r") as fresh:
        assert mayor(fresh, "kept") == "m0"
    commit = graph.commit("kept").id
    with pytest.raises(NotFound, match="reclaimed"):
        graph.tags.create("late", at=lost.id)
    graph.tags.delete("kept")
    collect(graph)
    with pytest.raises(NotFound, match="reclaimed"):
        mayor(graph, commit)


def test_upkeep_keeps_data_of_tagged_commit(graph: LocalGraph) -> None:
    graph.tags.create("kept")
    lost = graph.mutate(RENAME, {"m": "m1"}).commit
    assert lost is not None
    graph.mutate(RENAME, {"m": "m2"})
    report = perform_upkeep(repository_of(graph), keep=1)
    assert report is not None
    with pytest.raises(NotFound, match="reclaimed"):
        mayor(graph, lost.id)
    assert mayor(graph, "kept") == "m0"


def test_hard_drop_keeps_what_a_tag_needs(graph: LocalGraph) -> None:
    graph.tags.create("before")
    graph.schema.apply("node City { name: String @key }", allow_data_loss=True)
    assert mayor(graph, "before") == "m0"


def test_backup_restore_and_clone_carry_tags(graph: LocalGraph, tmp_path: Path) -> None:
    graph.tags.create("v1.0", message="kept")
    graph.mutate(RENAME, {"m": "m1"})
    og.backup(graph.uri, tmp_path / "backup")
    graph.branches.create("side")
    graph.mutate(RENAME, {"m": "m2"}, branch="side")
    graph.tags.create("on-side", at="side")
    collect(graph)
    og.backup(graph.uri, tmp_path / "backup", verify="full")
    tags = graph.tags.list()
    with og.open(tmp_path / "backup") as copy:
        assert copy.tags.list() == tags
        assert (mayor(copy, "v1.0"), mayor(copy, "on-side")) == ("m0", "m2")
    og.restore(tmp_path / "backup", tmp_path / "restored", verify="full")
    with og.open(tmp_path / "restored") as restored:
        assert restored.tags.list() == tags
        collect(restored)
        assert mayor(restored, "v1.0") == "m0"
    og.clone(graph.uri, tmp_path / "clone", verify="full")
    with og.open(tmp_path / "clone") as clone:
        assert [tag.name for tag in clone.tags.list()] == ["v1.0"]
        assert mayor(clone, "v1.0") == "m0"
    og.clone(graph.uri, tmp_path / "shallow", history=False)
    with og.open(tmp_path / "shallow") as shallow:
        assert shallow.tags.list() == []


def test_backup_of_tag_on_a_deleted_branch_has_its_data(graph: LocalGraph, tmp_path: Path) -> None:
    graph.branches.create("side")
    graph.mutate(RENAME, {"m": "m2"}, branch="side")
    graph.tags.create("on-side", at="side")
    graph.branches.delete("side")
    collect(graph)
    assert mayor(graph, "on-side") == "m2"
    og.backup(graph.uri, tmp_path / "backup", verify="full")
    with og.open(tmp_path / "backup") as copy:
        assert mayor(copy, "on-side") == "m2"


def test_create_tag_of_announced_versions_is_refused_as_reclaimed(graph: LocalGraph) -> None:
    old = graph.commits()[0]
    graph.mutate(RENAME, {"m": "m1"})
    manifest = repository_of(graph).manifest
    pins = {pin.path: [pin.version] for pin in graph.snapshot(at=old.id).types.values()}
    announce_reclaimed(manifest, manifest.refresh(), pins)
    with pytest.raises(NotFound, match="reclaimed"):
        graph.tags.create("late", at=old.id)
    assert graph.tags.list() == []


def test_verify_names_the_tag_whose_file_is_missing(graph: LocalGraph) -> None:
    graph.tags.create("v1.0")
    graph.mutate(RENAME, {"m": "m1"})
    collect(graph)
    (pin,) = graph.snapshot(at="v1.0").types.values()
    versions = Path(graph.uri.removeprefix("file://")) / pin.path / "_versions"
    present = {pin.version for pin in graph.snapshot().types.values()}
    removed = [
        file for file in versions.iterdir() if not any(str(version) in file.name for version in present)
    ]
    for file in removed:
        if str(pin.version) in file.name:
            file.unlink()
    report = graph.verify()
    assert [(item.kind, item.branches, item.tags) for item in report.damage] == [("missing", (), ("v1.0",))]
    with og.open(graph.uri, mode="r") as fresh, pytest.raises(StorageError, match="it is missing"):
        mayor(fresh, "v1.0")


def test_repair_restores_tags_of_a_damaged_bucket(graph: LocalGraph) -> None:
    for name in ("v1", "v2", "v3"):
        graph.tags.create(name)
    manifest = repository_of(graph).manifest
    (file,) = manifest.refresh().of_kind("tags")
    path = Path(graph.uri.removeprefix("file://")) / "__manifest" / "data" / file.name
    path.write_bytes(b"x" * path.stat().st_size)
    graph.close()
    with og.open(graph.uri) as damaged:
        assert mayor(damaged) == "m0"
        damaged.mutate(RENAME, {"m": "m1"})
        with pytest.raises(OmnigraphError):
            damaged.tags.list()
        assert not damaged.verify().ok
        damaged.repair(confirm=True)
        assert [tag.name for tag in damaged.tags.list()] == ["v1", "v2"]
        assert damaged.verify().ok
        assert mayor(damaged, "v1") == "m0"


def test_tags_fill_split_and_join_buckets(graph: LocalGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_buckets, "MAX_ENTRIES", 4)
    monkeypatch.setattr(bucket_entries, "MAX_ENTRIES", 4)
    monkeypatch.setattr(bucket_entries, "MIN_ENTRIES", 2)
    names = [f"v{number:02}" for number in range(13)]
    for name in names[::2] + names[1::2]:
        graph.tags.create(name)
    manifest = repository_of(graph).manifest
    assert len(manifest.refresh().of_kind("tags")) >= 3
    with og.open(graph.uri, mode="r") as cold:
        assert [tag.name for tag in cold.tags.list()] == names
        assert [tag.name for tag in cold.tags.list(prefix="v1", limit=2)] == ["v10", "v11"]
    for count, name in enumerate(names, start=1):
        graph.tags.delete(name)
        assert [tag.name for tag in graph.tags.list()] == names[count:]
    assert manifest.refresh().of_kind("tags") == []
    graph.tags.create("again")
    assert graph.verify().ok


def _create(handle: og.Graph, name: str, position: int, gate: threading.Barrier, outcomes: list[int]) -> None:
    gate.wait()
    with suppress(Conflict):
        if position % 2:
            handle.tags.create(name)
        else:
            handle.branches.create(name)
        outcomes.append(position)


def test_tag_and_branch_of_one_name_created_at_once_leave_one_of_them(graph: LocalGraph) -> None:
    others = [og.open(graph.uri, durability="os") for _ in range(4)]
    for number in range(6):
        name = f"n{number}"
        outcomes: list[int] = []
        gate = threading.Barrier(len(others))

        work = [
            partial(_create, handle, name, position, gate, outcomes) for position, handle in enumerate(others)
        ]
        threads = [threading.Thread(target=item) for item in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(outcomes) == 1
        is_tag, is_branch = name in [tag.name for tag in graph.tags.list()], name in graph.branches.list()
        assert (is_tag, is_branch) == (outcomes[0] % 2 == 1, outcomes[0] % 2 == 0)
    for handle in others:
        handle.close()


def test_tag_created_while_its_data_is_collected_is_kept_or_refused(graph: LocalGraph) -> None:
    commits = [graph.commits()[0].id]
    for number in range(1, 7):
        made = graph.mutate(RENAME, {"m": f"m{number}"}).commit
        assert made is not None
        commits.append(made.id)
    other = og.open(graph.uri, durability="os")
    started = threading.Event()

    def tag_all() -> None:
        started.set()
        for number, commit in enumerate(commits[:-1]):
            with suppress(NotFound):
                other.tags.create(f"t{number}", at=commit)

    thread = threading.Thread(target=tag_all)
    thread.start()
    started.wait()
    collect(graph)
    thread.join()
    collect(graph)
    for tag in graph.tags.list():
        assert mayor(graph, tag.name) == f"m{tag.name[1:]}"
    assert graph.verify().ok
    other.close()
