"""Damaged and missing files are reported with their type, file, commit and branch."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import NotFound, OmnigraphError, StorageError
from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.tables.table_fragments import list_fragments
from tests.maintain.damage import verify_path
from tests.support.s3 import Bucket
from tests.support.s3_graphs import upload_graph

pytest_plugins = ["tests.support.s3_fixtures"]

SCHEMA = """
node Person { name: String @key  age: I32?  bio: String? @index  vec: Vector(4)? }
node City { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""
AGES = "query ages() { match { $p: Person } return { $p.name, $p.age } }"
CITIES = "query cities() { match { $c: City } return { $c.name } }"
READS = (
    "query all() { match { $p: Person } return { $p.name, $p.age, $p.bio, $p.vec } }",
    "query friends() { match { $p: Person  $p knows $q } return { $p.name, $q.age } }",
    'query one() { match { $p: Person { name: "p3" } } return { $p.age } }',
    CITIES,
)
SET_AGE = 'query age() { update Person set { age: 7 } where name = "p5" }'
ADD_CITY = 'query add() { insert City { name: "new" } }'


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with every kind of file: data, deletions, indexes, several versions and two branches."""
    root = tmp_path_factory.mktemp("damage") / "graph"
    with og.init(str(root), SCHEMA, durability="os") as graph:
        people = [
            {"name": f"p{number}", "age": number, "bio": f"hello {number}", "vec": [number, 1, 2, 3]}
            for number in range(20)
        ]
        graph.load(
            [{"type": "Person", "data": row} for row in people] + [{"type": "City", "data": {"name": "Oslo"}}]
        )
        graph.load([{"edge": "Knows", "from": f"p{number}", "to": f"p{number + 1}"} for number in range(15)])
        graph.mutate('query delete() { delete Person where name = "p19" }')
        graph.optimize()
        graph.branches.create("trial")
        graph.mutate('query delete() { delete Person where name = "p18" }', branch="trial")
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "graph"))


def opened(root: Path, mode: str = "rw") -> og.Graph:
    return og.open(str(root), mode, durability="os")  # type: ignore[arg-type]


def pin_files(root: Path, key: str, branch: str = "main") -> tuple[str, Path, list[Path]]:
    """Return the head commit, the version file and the data files of a type."""
    with opened(root, "r") as graph:
        snapshot = graph.snapshot(branch)
        pin = snapshot.pin(key)
        names = [
            item.path
            for fragment in snapshot.tables.open(pin.path, pin.version).get_fragments()
            for item in fragment.metadata.files
        ]
    folder = root / pin.path
    return snapshot.commit_id, folder / version_file(pin.version), [folder / "data" / name for name in names]


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])


def overwrite(file: Path) -> None:
    """Replace the content with as many other bytes, apart from the footer."""
    data = file.read_bytes()
    file.write_bytes(b"\xa5" * (len(data) - 16) + data[-16:])


def zero_end(file: Path) -> None:
    """Replace the last part of the content by zeros, apart from the footer."""
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2 - 10) + data[-10:])


DAMAGES: list[Callable[[Path], None]] = [Path.unlink, truncate, overwrite]


def assert_damaged(error: StorageError, root: Path, file: Path, commit: str, branch: str = "main") -> None:
    assert error.kind == "permanent"
    details = error.details
    assert (details["reason"], details["type"], details["commit_id"], details["branch"]) == (
        "damaged",
        "Person",
        commit,
        branch,
    )
    assert details["file"] == str(file.relative_to(root))
    for text in ("Person", details["file"], commit, branch):
        assert text in error.message
    assert "omnigraph verify" in str(error.hint)
    assert f"omnigraph repair --reset-branch {branch}" in str(error.hint)


@pytest.mark.parametrize("damage", DAMAGES)
def test_query_with_damaged_data_file_names_type_file_commit_and_branch(
    root: Path, damage: Callable[[Path], None]
) -> None:
    commit, _, files = pin_files(root, "node:Person")
    damage(files[0])
    with opened(root) as graph:
        for work in (lambda: graph.query(AGES), lambda: graph.get("Person", "p3")):
            with pytest.raises(StorageError) as caught:
                work()
            assert_damaged(caught.value, root, files[0], commit)


@pytest.mark.parametrize("damage", DAMAGES)
def test_query_with_damaged_version_file_of_a_branch_head_is_not_reclaimed(
    root: Path, damage: Callable[[Path], None]
) -> None:
    commit, version, _ = pin_files(root, "node:Person", "trial")
    damage(version)
    with opened(root) as graph:
        with pytest.raises(StorageError) as caught:
            graph.query(AGES, branch="trial")
        assert_damaged(caught.value, root, version, commit, "trial")
        assert len(graph.query(AGES)) == 19


def test_query_with_damaged_column_names_the_property(root: Path) -> None:
    _, _, files = pin_files(root, "node:Person")
    overwrite(files[0])
    with opened(root) as graph, pytest.raises(StorageError, match="property '") as caught:
        graph.query(AGES)
    assert caught.value.details["property"] in ("name", "age", "bio", "vec", "id")


@pytest.mark.parametrize("damage", [*DAMAGES, zero_end], ids=lambda each: each.__name__)
def test_query_with_damaged_deletion_file_names_it(root: Path, damage: Callable[[Path], None]) -> None:
    with opened(root) as graph:
        graph.mutate('query delete() { delete Person where name = "p17" }')
        snapshot = graph.snapshot("main")
        pin = snapshot.pin("node:Person")
        (deletions,) = {
            root / pin.path / fragment.deletions
            for fragment in list_fragments(snapshot.tables, pin)
            if fragment.deletions is not None
        }
    damage(deletions)
    with opened(root) as graph, pytest.raises(StorageError) as caught:
        graph.query(AGES)
    assert_damaged(caught.value, root, deletions, snapshot.commit_id)


def test_diff_with_altered_column_name_in_a_version_file_names_the_file(root: Path) -> None:
    commit, version, _ = pin_files(root, "node:Person")
    with opened(root) as graph:
        physical = graph.snapshot("main").table("node:Person").physical("bio")
        oldest = graph.commits()[-1].id
    altered = version.read_bytes().replace(physical.encode(), physical.replace("b", "c").encode())
    assert altered != version.read_bytes()
    version.write_bytes(altered)
    with opened(root) as graph, pytest.raises(StorageError) as caught:
        list(graph.diff(oldest, commit))
    assert_damaged(caught.value, root, version, commit)


def test_damaged_table_does_not_stop_other_types_or_branches(root: Path) -> None:
    _, _, files = pin_files(root, "node:Person")
    files[0].unlink()
    with opened(root) as graph:
        assert graph.query(CITIES).rows() == [{"c.name": "Oslo"}]
        graph.mutate(ADD_CITY)
        graph.branches.create("another")
        assert len(graph.query(CITIES, branch="another")) == 2
        assert len(graph.commits()) == 6
        with pytest.raises(StorageError, match="Person is damaged"):
            graph.mutate(SET_AGE)
        with pytest.raises(StorageError, match="Person is damaged"):
            graph.export(str(root.parent / "out.ndjson"))
        assert graph.export(str(root.parent / "out.ndjson"), types=["City"]) == 2


def test_read_of_old_commit_without_its_version_file_is_reclaimed(root: Path) -> None:
    with opened(root) as graph:
        old = graph.commits()[-2]
        pin = graph.snapshot(at=old.id).pin("node:Person")
        (root / pin.path / version_file(pin.version)).unlink()
    with opened(root) as graph, pytest.raises(NotFound, match="was reclaimed by cleanup") as caught:
        graph.query(AGES, at=old.id)
    assert caught.value.details == {"commit_id": old.id, "reason": "reclaimed"}


def test_read_of_old_commit_with_a_missing_data_file_is_damaged(root: Path) -> None:
    """Garbage collection removes the version file first, so that a version that exists has all of its files."""
    with opened(root) as graph:
        old = graph.commits()[-2]
        pin = graph.snapshot(at=old.id).pin("node:Person")
    for file in (root / pin.path / "data").iterdir():
        file.unlink()
    with opened(root) as graph, pytest.raises(StorageError) as caught:
        graph.query(AGES, at=old.id)
    assert (caught.value.details["reason"], caught.value.details["commit_id"]) == ("damaged", old.id)


def test_query_with_missing_object_on_s3_names_the_file(s3: Bucket, root: Path) -> None:
    commit, _, files = pin_files(root, "node:Person")
    files[0].unlink()
    uri = upload_graph(root, s3, "graph")
    with og.open(uri, "r", storage_options=s3.options) as graph, pytest.raises(StorageError) as caught:
        graph.query(AGES)
    assert_damaged(caught.value, root, files[0], commit)


# --- the manifest -----------------------------------------------------------------------------------------


def test_open_with_damaged_newest_manifest_version_names_the_file(root: Path) -> None:
    newest = min((root / "__manifest" / "_versions").glob("*.manifest"))
    newest.write_bytes(newest.read_bytes()[:100])
    with pytest.raises(StorageError) as caught:
        opened(root)
    assert caught.value.details["file"] == f"__manifest/_versions/{newest.name}"
    assert caught.value.details["reason"] == "damaged"


def test_open_with_altered_file_name_in_the_newest_manifest_version_is_damaged(root: Path) -> None:
    newest = min((root / "__manifest" / "_versions").glob("*.manifest"))
    newest.write_bytes(newest.read_bytes().replace(b"registry-", b"segistry-"))
    with pytest.raises(StorageError) as caught:
        opened(root)
    assert caught.value.details["file"] == f"__manifest/_versions/{newest.name}"


def test_open_without_any_manifest_version_is_damaged_and_init_creates_nothing(root: Path) -> None:
    shutil.rmtree(root / "__manifest" / "_versions")
    with pytest.raises(StorageError, match="every version is missing"):
        opened(root)
    with pytest.raises(StorageError, match="every version is missing"):
        og.init(str(root), SCHEMA)
    assert not (root / "__manifest" / "_versions").exists()
    with pytest.raises(StorageError, match="every version is missing"):
        verify_path(root)


def test_query_with_missing_head_file_names_it(root: Path) -> None:
    for file in (root / "__manifest" / "data").glob("head-*"):
        file.unlink()
    with opened(root) as graph, pytest.raises(StorageError, match=r"head-\S+ is damaged: it is missing"):
        graph.query(CITIES)


# --- storage that is gone ---------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False], ids=["missing root", "empty mount point"])
def test_handle_reports_vanished_root_and_recovers_when_it_is_back(root: Path, whole: bool) -> None:
    aside = root.with_name("aside")
    with opened(root) as graph:
        assert len(graph.query(CITIES)) == 1
        root.rename(aside)
        if not whole:
            root.mkdir()
        for work in (
            lambda: graph.query(CITIES),
            lambda: graph.mutate(ADD_CITY),
            lambda: graph.branches.list(),
            lambda: graph.commits(),
        ):
            with pytest.raises(StorageError, match="the storage of the graph is gone") as caught:
                work()
            assert (caught.value.kind, caught.value.details["reason"]) == ("not_found", "vanished")
        assert not root.exists() or not list(root.iterdir())
        shutil.rmtree(root, ignore_errors=True)
        aside.rename(root)
        assert len(graph.query(CITIES)) == 1
        graph.mutate(ADD_CITY)
        assert len(graph.query(CITIES)) == 2


def test_handle_reports_a_manifest_that_lost_its_newest_versions(root: Path) -> None:
    with opened(root) as graph:
        newest = min((root / "__manifest" / "_versions").glob("*.manifest"))
        newest.unlink()
        with pytest.raises(StorageError, match="the newest commits of the graph are gone"):
            graph.query(CITIES)


# --- any byte of any file ---------------------------------------------------------------------------------


def spoil(root: Path, rng: random.Random) -> str:
    """Damage one file of a random kind; return what was done."""
    kinds: dict[tuple[str, ...], list[Path]] = {}
    for file in sorted(file for file in root.rglob("*") if file.is_file()):
        parts = file.relative_to(root).parts
        kinds.setdefault((parts[0], parts[1] if parts[0] == "__manifest" else parts[2]), []).append(file)
    file = rng.choice(kinds[rng.choice(sorted(kinds))])
    data = bytearray(file.read_bytes())
    how = rng.choice(["flip", "zero", "truncate", "delete"]) if data else "delete"
    place = rng.randrange(len(data)) if data else 0
    if how == "delete":
        file.unlink()
    elif how == "flip":
        data[place] ^= 1 << rng.randrange(8)
    elif how == "zero":
        data[place : place + 64] = bytes(len(data[place : place + 64]))
    else:
        del data[place:]
    if how != "delete":
        file.write_bytes(data)
    return f"{how} {file.relative_to(root)} at {place}"


CALLS: list[Callable[[og.Graph], object]] = [
    *(lambda graph, text=text: graph.query(text).rows() for text in READS),
    lambda graph: graph.get("Person", "p5"),
    lambda graph: list(graph.diff(graph.commits()[2].id, graph.commits()[0].id)),
    lambda graph: graph.mutate(SET_AGE),
    lambda graph: graph.mutate(ADD_CITY),
    lambda graph: graph.branches.merge("trial"),
    lambda graph: graph.indexes(),
]


def check_spoiled(template: Path, folder: Path, seed: int) -> None:
    """Every exception of a damaged graph is one of the library: `StorageError`, or `NotFound` for an old commit."""
    shutil.rmtree(folder, ignore_errors=True)
    root = Path(shutil.copytree(template, folder / "graph"))
    what = f"seed {seed}, {spoil(root, random.Random(seed))}"
    if raises_storage_error(lambda: opened(root).close(), what):
        return
    with opened(root) as graph:
        for call in CALLS:
            raises_storage_error(lambda call=call: call(graph), what)  # type: ignore[misc]


def raises_storage_error(call: Callable[[], object], what: str) -> bool:
    """Return whether a call raises an error that the library documents for damage; fail for any other exception."""
    try:
        call()
    except OmnigraphError as error:
        if isinstance(error, StorageError) or error.details.get("reason") == "reclaimed":
            return True
        pytest.fail(f"{what}: {error!r}")
    except BaseException as error:
        # A panic of Lance is not an Exception.
        raise AssertionError(f"{what}: {error!r}") from error
    return False


@pytest.mark.parametrize("seed", range(12))
def test_any_call_on_a_spoiled_graph_raises_errors_of_the_library_only(
    template: Path, tmp_path: Path, seed: int
) -> None:
    check_spoiled(template, tmp_path / "spoiled", seed)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_any_call_on_many_spoiled_graphs_raises_errors_of_the_library_only(
    template: Path, tmp_path: Path
) -> None:
    for seed in range(1_000, 2_000):
        check_spoiled(template, tmp_path / "spoiled", seed)
