"""Every file that a commit needs has one recorded digest, after every kind of write, and it is that of the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.graph.repository import Repository
from omnigraph.store.file_digests import digest_file, parse_digests
from omnigraph.store.manifest.records import CommitRecord
from omnigraph.store.tables.table_files import TableFiles

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  about: String? @index
  photo: Blob?
}
node Firm { name: String @key }
edge Knows: Person -> Person
"""
PEOPLE = [{"name": f"p{number}", "age": number, "about": f"number {number}"} for number in range(60)]
KNOWS = [{"from": f"p{number}", "to": f"p{number + 1}"} for number in range(40)]


def all_commits(graph: Repository) -> list[CommitRecord]:
    return list(graph.manifest.all_commits(graph.manifest.refresh()))


def check_recorded(graph: Repository, folder: Path, checked: Sequence[CommitRecord] | None = None) -> int:
    """Check the files of commits, by default of all; return how many there are."""
    files = TableFiles(graph.tables.root, graph.objects)
    view = graph.manifest.refresh()
    commits = all_commits(graph)
    introduced = Counter(
        (path, digest.name) for commit in commits for path, digest in parse_digests(commit.files)
    )
    recorded = graph.manifest.recorded_files(view)
    needed: set[tuple[str, str]] = set()
    pins = [pin for commit in checked or commits for pin in commit.tables.values()]
    for path, version in {(pin.path, pin.version) for pin in pins}:
        needed |= {(path, name) for name in needed_files(files, folder, path, version)}
    for path, name in sorted(needed):
        assert introduced[path, name] == 1, f"{path}/{name} has {introduced[path, name]} digests"
        assert recorded[path, name] == digest_file(folder / path / name, name)
    return len(needed)


def needed_files(files: TableFiles, folder: Path, path: str, version: int) -> Iterator[str]:
    needed = files.needed_by(path, version)
    yield from needed.files
    for directory in needed.folders:
        for file in (folder / path / directory).rglob("*"):
            yield str(file.relative_to(folder / path))


def repository_of(graph: og.Graph) -> Repository:
    assert isinstance(graph, LocalGraph)
    return graph._repository


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "graph"


@pytest.fixture
def graph(folder: Path) -> Iterator[og.Graph]:
    with og.init(folder, schema=SCHEMA, durability="os") as graph:
        graph.load({"Person": PEOPLE, "Knows": KNOWS}, mode="append")
        yield graph


def put(graph: og.Graph, name: str, age: int, branch: str = "main") -> None:
    graph.mutate(
        "query put($n: String, $a: I32) { insert Person { name: $n, age: $a } }",
        {"n": name, "a": age},
        branch=branch,
    )


def merge_rows(graph: og.Graph) -> None:
    graph.branches.create("side")
    put(graph, "p1", 100, "side")
    put(graph, "p2", 200)
    assert graph.branches.merge("side").outcome == "merged"


def adopt(graph: og.Graph) -> None:
    graph.branches.create("side")
    put(graph, "p1", 100, "side")
    graph.load({"Firm": [{"name": "Acme"}]}, mode="append")
    graph.branches.merge("side")


def merge_columns(graph: og.Graph) -> None:
    graph.branches.create("side")
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?\n  city: String?"), branch="side")
    put(graph, "p1", 100, "side")
    put(graph, "p2", 200)
    graph.branches.merge("side")


def revert(graph: og.Graph) -> None:
    put(graph, "p1", 100)
    head = graph.commits(limit=1)[0]
    put(graph, "p2", 100)
    graph.revert(head.id)


def many_small_writes(graph: og.Graph) -> None:
    for number in range(35):
        put(graph, f"small{number}", number)


WRITES: dict[str, Callable[[og.Graph], Any]] = {
    "insert": lambda graph: put(graph, "new", 1),
    "upsert": lambda graph: put(graph, "p1", 100),
    "delete": lambda graph: graph.mutate('query x() { delete Person where name = "p3" }'),
    "delete many": lambda graph: graph.mutate("query x() { delete Person where age > 10 }"),
    "append": lambda graph: graph.load({"Person": [{"name": "new"}]}, mode="append"),
    "merge load": lambda graph: graph.load(
        {"Person": [{**person, "age": 99} for person in PEOPLE[:30]]}, mode="merge"
    ),
    "overwrite": lambda graph: graph.load({"Knows": KNOWS[:3]}, mode="overwrite"),
    "blob": lambda graph: graph.load({"Person": [{"name": "b", "photo": b"x" * 300_000}]}, mode="append"),
    "optimize": lambda graph: graph.optimize(),
    "merge of rows": merge_rows,
    "merge that adopts": adopt,
    "merge of columns": merge_columns,
    "revert": revert,
    "compaction on write": many_small_writes,
    "added type": lambda graph: graph.schema.apply(SCHEMA + "\nnode City { name: String @key }"),
    "added column": lambda graph: graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?\n  c: String?")),
}


@pytest.mark.parametrize("write", WRITES)
def test_write_records_one_digest_for_every_file_of_every_commit(
    graph: og.Graph, folder: Path, write: str
) -> None:
    before = check_recorded(repository_of(graph), folder)
    assert before > 6
    WRITES[write](graph)
    assert check_recorded(repository_of(graph), folder) > before


def test_hard_drop_records_one_digest_for_every_file_of_the_copied_table(
    graph: og.Graph, folder: Path
) -> None:
    graph.schema.apply(SCHEMA.replace("  age: I32?\n", ""), allow_data_loss=True)
    repository = repository_of(graph)
    # The versions of earlier commits were removed.
    (head,) = [commit for commit in all_commits(repository) if commit.operation == "schema_apply"]
    assert check_recorded(repository, folder, [head]) > 6


def introduced_files(commit: CommitRecord) -> list[str]:
    return [digest.name for _, digest in parse_digests(commit.files)]


def test_adopted_version_introduces_no_files(graph: og.Graph) -> None:
    graph.branches.create("side")
    put(graph, "p1", 100, "side")
    assert graph.branches.merge("side").outcome == "fast_forward"
    head = repository_of(graph).snapshot().commit
    manifest = repository_of(graph).manifest
    commit = manifest.find_commit(manifest.view, head.id)
    assert commit is not None
    assert introduced_files(commit) == []
