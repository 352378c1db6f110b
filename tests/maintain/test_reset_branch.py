"""Repair of damage: reports of damaged types, reset of branches, and rebuilding of the manifest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput, NotFound, OmnigraphError, PermissionDenied, StorageError
from omnigraph.graph.open_storage import connect
from omnigraph.graph.repository import Repository
from omnigraph.maintain.manifest_repair import repair_manifest
from omnigraph.store.lance.lance_files import version_file
from tests.maintain.damage import DAMAGES, build_graph, delete, truncate, verify_path

NAMES = "query q() { match { $p: Person } return { $p.name as name } order { name } }"
DOC, PERSON = "node:Doc", "node:Person"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reset") / "g"
    build_graph(path)
    return path


@pytest.fixture
def graph(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "g"))


def opened(path: Path) -> og.LocalGraph:
    return og.open(path, durability="os")


def people(handle: og.LocalGraph, branch: str = "main") -> list[str]:
    return [row["name"] for row in handle.query(NAMES, branch=branch)]


def lose_version(path: Path, key: str, branch: str) -> None:
    """Delete the manifest file of a table at the head of a branch."""
    with og.open(path, "r") as handle:
        pin = handle.snapshot(branch=branch).pin(key)
    delete(path / pin.path / version_file(pin.version))


def lose_head(path: Path, branch: str) -> None:
    """Truncate the head of a branch."""
    with og.open(path, "r") as handle:
        incarnation = handle._repository.branches()[branch].incarnation
    truncate(max(path.glob(f"__manifest/data/head-{incarnation}-*")))


def rows_of(report: og.Repair) -> dict[str, tuple[str, str]]:
    return {item["type_key"]: (item["classification"], item["action"]) for item in report.datasets}


def test_repair_missing_files_are_damaged_and_not_no_drift(graph: Path) -> None:
    lose_version(graph, DOC, "main")
    with opened(graph) as handle:
        for confirm in (False, True):
            rows = rows_of(handle.repair(confirm))
            assert rows[DOC] == ("damaged", "refused")
            assert rows[PERSON] == ("no_drift", "no_op")
        error = next(item["error"] for item in handle.repair().datasets if item["type_key"] == DOC)
        assert "_versions/" in error
        assert "omnigraph verify" in error


def test_reset_branch_preview_lists_what_is_lost_and_changes_nothing(graph: Path) -> None:
    lose_version(graph, PERSON, "deep")
    with opened(graph) as handle:
        before = handle.commits(branch="deep")
        reset = handle.repair(reset_branch="deep").reset
        assert reset is not None
        assert (reset["head"], reset["to"], reset["commit_id"]) == (before[0].id, before[1].id, None)
        assert reset["lost_commits"] == [before[0].id]
        person = next(item for item in reset["types"] if item["type_key"] == PERSON)
        assert person == {"type_key": PERSON, "rows_before": 13, "rows_after": 12, "damaged": True}
        assert handle.commits(branch="deep") == before


def test_reset_branch_confirmed_makes_a_commit_with_the_newest_intact_state(graph: Path) -> None:
    with opened(graph) as handle:
        expected = people(handle, "work")
    lose_version(graph, PERSON, "deep")
    with og.open(graph, durability="os", actor="ann") as handle:
        lost, kept = handle.commits(branch="deep")[:2]
        report = handle.repair(True, reset_branch="deep")
        head = handle.commits(branch="deep")[0]
        assert report.reset is not None
        assert (head.id, head.operation, head.actor) == (report.reset["commit_id"], "reset", "ann")
        assert head.parents == (lost.id,)
        assert kept.id in (head.message or "")
        assert people(handle, "deep") == expected
    with opened(graph) as handle:
        handle.mutate('query q() { insert Person { name: "new", email: "n" } }', branch="deep")
        assert "new" in people(handle, "deep")
    assert verify_path(graph).ok


def test_reset_branch_leaves_other_branches_and_types_readable_and_writable(graph: Path) -> None:
    lose_version(graph, DOC, "main")
    with opened(graph) as handle:
        # Before the reset: another type of the branch, and another branch.
        assert people(handle)
        handle.mutate('query q() { insert Person { name: "one", email: "1" } }')
        handle.mutate('query q() { insert Doc { title: "two" } }', branch="work")
        handle.repair(True, reset_branch="main")
        # The write after the damage shared the damaged table, so it is lost too.
        assert "one" not in people(handle)
        assert len(handle.query("query q() { match { $d: Doc } return { $d.title as t } }")) == 3
        handle.mutate('query q() { insert Doc { title: "three" } }')


def test_reset_branch_unreadable_head_loses_nothing_if_its_commit_is_in_the_log(graph: Path) -> None:
    with opened(graph) as handle:
        expected, last = people(handle), handle.commits()[0]
    lose_head(graph, "main")
    with opened(graph) as handle:
        with pytest.raises(OmnigraphError):
            people(handle)
        assert people(handle, "work")
        preview = handle.repair()
        assert [item["action"] for item in preview.datasets] == ["refused"]
        report = handle.repair(True, reset_branch="main")
        assert report.reset is not None
        assert (report.reset["head"], report.reset["to"], report.reset["lost_commits"]) == (None, last.id, [])
        assert people(handle) == expected
        assert handle.commits()[0].parents == (last.id,)
        handle.mutate('query q() { insert Doc { title: "after" } }')
    assert verify_path(graph).ok


def test_reset_branch_to_a_chosen_commit(graph: Path) -> None:
    with opened(graph) as handle:
        commits = handle.commits()
        target = commits[3]
        before = [row["name"] for row in handle.query(NAMES, at=target.id)]
        reset = handle.repair(True, reset_branch="main", to=target.id).reset
        assert reset is not None
        assert set(reset["lost_commits"]) >= {item.id for item in commits[:3]}
        assert people(handle) == before
        # The commits before the reset are still in the history.
        assert [item.id for item in handle.commits()[1:4]] == [item.id for item in commits[:3]]


def test_reset_branch_intact_branch_changes_nothing(graph: Path) -> None:
    with opened(graph) as handle:
        before = handle.commits()
        reset = handle.repair(True, reset_branch="main").reset
        assert reset is not None
        assert (reset["commit_id"], reset["lost_commits"], reset["to"]) == (None, [], before[0].id)
        assert handle.commits() == before


def test_reset_branch_refuses_wrong_targets(graph: Path) -> None:
    with opened(graph) as handle:
        deep = handle.commits(branch="deep")[0].id
        with pytest.raises(NotFound, match="commit 'nothing' not found"):
            handle.repair(True, reset_branch="main", to="nothing")
        with pytest.raises(InvalidInput, match="is not in the history of branch 'main'"):
            handle.repair(True, reset_branch="main", to=deep)
        with pytest.raises(NotFound, match="branch 'other' not found"):
            handle.repair(True, reset_branch="other")
        with pytest.raises(InvalidInput, match="`to` requires `reset_branch`"):
            handle.repair(to=deep)
    lose_version(graph, PERSON, "deep")
    with opened(graph) as handle, pytest.raises(InvalidInput, match="is not intact") as caught:
        handle.repair(True, reset_branch="deep", to=deep)
    assert "newest intact commit" in (caught.value.hint or "")
    with og.open(graph, "r") as handle, pytest.raises(PermissionDenied):
        handle.repair(True, reset_branch="deep")


def test_reset_branch_no_intact_commit_is_a_storage_error(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", schema="node City { name: String @key }", durability="os")
    graph.close()
    for file in (tmp_path / "g" / "nodes").rglob("*.manifest"):
        delete(file)
    with (
        opened(tmp_path / "g") as handle,
        pytest.raises(StorageError, match="no commit of branch 'main' is intact"),
    ):
        handle.repair(True, reset_branch="main")


# --- the manifest -------------------------------------------------------------------------------------------


def repair_storage(path: Path, *, confirm: bool) -> list[tuple[str, bool]]:
    _, root, objects = connect(path, None, "os")
    return [(item.part, item.rebuilt) for item in repair_manifest(root, objects, confirm=confirm)]


@pytest.mark.parametrize("how", DAMAGES)
def test_repair_newest_manifest_version_is_rebuilt_with_its_commit(graph: Path, how: str) -> None:
    with opened(graph) as handle:
        handle.mutate('query q() { insert Doc { title: "last" } }')
        last = handle.commits()[0].id
    DAMAGES[how](min(graph.glob("__manifest/_versions/*.manifest")))
    if how == "flipped":
        # A single bit may leave the version readable. Then there is nothing to rebuild.
        return
    assert repair_storage(graph, confirm=False) == [("__manifest/_versions", False)]
    assert repair_storage(graph, confirm=True) == [("__manifest/_versions", True)]
    with opened(graph) as handle:
        assert handle.commits()[0].id == last
        assert len(handle.query("query q() { match { $d: Doc } return { $d.title as t } }")) == 5
        handle.mutate('query q() { insert Doc { title: "more" } }')
    assert verify_path(graph).ok


@pytest.mark.parametrize("how", ["truncated", "deleted", "replaced"])
def test_repair_unreadable_registry_is_rebuilt_from_the_heads(graph: Path, how: str) -> None:
    with opened(graph) as handle:
        registry = handle._repository.manifest.registry(handle._repository.manifest.view)
    current = max(graph.glob("__manifest/data/registry-*"))
    DAMAGES[how](current)
    with pytest.raises(OmnigraphError):
        opened(graph)
    assert repair_storage(graph, confirm=False) == [("__manifest/registry", False)]
    assert repair_storage(graph, confirm=True) == [("__manifest/registry", True)]
    repository = Repository.open(graph, durability="os")
    rebuilt = repository.manifest.registry(repository.manifest.view)
    repository.close()
    assert (rebuilt.graph_id, rebuilt.format) == (registry.graph_id, registry.format)
    assert rebuilt.next_id >= registry.next_id
    assert verify_path(graph).ok


@pytest.mark.parametrize("how", ["truncated", "deleted", "replaced"])
def test_repair_unreadable_bucket_is_rebuilt_with_its_branches(graph: Path, how: str) -> None:
    with opened(graph) as handle:
        handle.branches.create("resting")
        handle.branches.create("moved")
        handle.mutate('query q() { insert Doc { title: "own" } }', branch="moved")
        manifest = handle._repository.manifest
        heads = {name: manifest.head(manifest.view, name) for name in manifest.branches(manifest.view)}
    DAMAGES[how](max(graph.glob("__manifest/data/branches-*")))
    found = verify_path(graph)
    assert [item.file for item in found.damage if "branches cannot be read" in item.problem]
    assert repair_storage(graph, confirm=False) == [("__manifest/branches", False)]
    assert repair_storage(graph, confirm=True) == [("__manifest/branches", True)]
    repository = Repository.open(graph, durability="os")
    view = repository.manifest.refresh()
    assert {name: repository.manifest.head(view, name) for name in repository.branches()} == heads
    repository.close()
    assert verify_path(graph).ok


def test_repair_newest_version_that_created_a_branch_has_the_branch(graph: Path) -> None:
    with opened(graph) as handle:
        handle.branches.create("late")
        head = handle.commits()[0].id
    truncate(min(graph.glob("__manifest/_versions/*.manifest")))
    assert repair_storage(graph, confirm=True) == [("__manifest/_versions", True)]
    with opened(graph) as handle:
        assert "late" in handle.branches.list()
        assert handle.commits("late")[0].id == head
    assert verify_path(graph).ok


def test_repair_only_registry_lost_is_rebuilt(tmp_path: Path) -> None:
    path = tmp_path / "g"
    with og.init(path, schema="node City { name: String @key }", durability="os") as handle:
        handle.load({"City": [{"name": "Bern"}]})
    for file in path.glob("__manifest/data/registry-*"):
        delete(file)
    assert repair_storage(path, confirm=True) == [("__manifest/registry", True)]
    with opened(path) as handle:
        rows = list(handle.query("query q() { match { $c: City } return { $c.name as n } }"))
    assert [row["n"] for row in rows] == ["Bern"]
    assert verify_path(path).ok
