"""Damaged files: `verify_reads` raises before their rows are used; otherwise sizes of data files are checked."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput, StorageError
from tests.support.s3 import Bucket
from tests.support.s3_graphs import upload_graph

pytest_plugins = ["tests.support.s3_fixtures"]

SCHEMA = """
node Person {
  name: String @key
  age: I32?
}
edge Knows: Person -> Person
"""
PEOPLE = "query people() { match { $p: Person } return { $p.name as name, $p.age as age } order { name } }"
KNOWS = "query k() { match { $a: Person $a knows $b } return { $a.name as a, $b.name as b } order { a, b } }"
ONE = 'query one() { match { $p: Person { name: "p7" } } return { $p.age as age } }'


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with data, deletion, index and version files on two branches."""
    folder = tmp_path_factory.mktemp("verify") / "graph"
    with og.init(folder, schema=SCHEMA, durability="os") as graph:
        people = [{"name": f"p{number}", "age": number} for number in range(50)]
        knows = [{"from": f"p{number}", "to": f"p{number + 1}"} for number in range(40)]
        graph.load({"Person": people, "Knows": knows}, mode="append")
        graph.optimize()
        graph.branches.create("side")
        graph.mutate('query x() { update Person set { age: 100 } where name = "p3" }', branch="side")
        graph.mutate('query x() { delete Person where name = "p49" }')
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy of the graph."""
    copy = tmp_path / "graph"
    for file in original.rglob("*"):
        if file.is_file():
            target = copy / file.relative_to(original)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    return copy


def read_all(uri: Path | str, **options: Any) -> list[Any]:
    """Return the rows of both branches, read with a new handle."""
    with og.open(uri, mode="r", **options) as graph:
        return [
            graph.query(text, branch=branch).rows()
            for branch in ("main", "side")
            for text in (PEOPLE, KNOWS, ONE)
        ]


def table_files(folder: Path) -> list[Path]:
    found = [path for kind in ("nodes", "edges") for path in (folder / kind).rglob("*") if path.is_file()]
    return sorted(path for path in found if path.suffix in (".lance", ".arrow", ".bin", ".manifest"))


def test_read_of_an_intact_graph_gives_the_same_rows(folder: Path) -> None:
    assert read_all(folder, verify_reads=True) == read_all(folder)


def test_read_with_any_flipped_bit_is_refused_or_right(folder: Path) -> None:
    expected = read_all(folder)
    chance = random.Random(7)
    refused: dict[str, int] = {}
    for file in table_files(folder):
        whole = file.read_bytes()
        for _ in range(4):
            data = bytearray(whole)
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            file.write_bytes(data)
            try:
                assert read_all(folder, verify_reads=True) == expected, (
                    f"wrong rows with a flipped bit in {file}"
                )
            except StorageError:
                kind = file.relative_to(folder).parts[2]
                refused[kind] = refused.get(kind, 0) + 1
        file.write_bytes(whole)
    # Rows are read without an index that is damaged.
    assert set(refused) == {"data", "_deletions", "_versions"}
    assert read_all(folder, verify_reads=True) == expected


def test_read_of_an_altered_data_file_names_it_and_both_digests(folder: Path) -> None:
    file = next(path for path in table_files(folder) if path.parent.name == "data")
    data = bytearray(file.read_bytes())
    data[10] ^= 1
    file.write_bytes(data)
    name = str(file.relative_to(folder))
    digests = f"{name}: its digest is [0-9a-f]{{32}}, [0-9a-f]{{32}} was recorded"
    with pytest.raises(StorageError, match=f"type .* is damaged in commit .* {digests}") as error:
        read_all(folder, verify_reads=True)
    details = error.value.details
    assert (details["kind"], details["reason"], details["file"]) == ("permanent", "damaged", name)
    assert details["table_key"] == ("node:Person" if name.startswith("nodes") else "edge:Knows")
    assert "omnigraph verify" in str(error.value.hint)


@pytest.mark.parametrize("verify_reads", [False, True])
def test_read_of_a_data_file_of_another_size_is_refused(folder: Path, verify_reads: bool) -> None:
    expected = read_all(folder)
    for file in table_files(folder):
        if file.parent.name != "data":
            continue
        whole = file.read_bytes()
        # The footer is intact: only the size tells.
        file.write_bytes(b"\0" * 64 + whole)
        with pytest.raises(
            StorageError, match=f"{len(whole) + 64} bytes in storage, {len(whole)} bytes were written"
        ):
            read_all(folder, verify_reads=verify_reads)
        file.write_bytes(whole)
    assert read_all(folder, verify_reads=verify_reads) == expected


def test_pickled_handle_verifies_too(folder: Path) -> None:
    with og.open(folder, mode="r", verify_reads=True) as graph:
        copy = pickle.loads(pickle.dumps(graph))
    for file in table_files(folder):
        if file.parent.name == "data":
            data = bytearray(file.read_bytes())
            data[10] ^= 1
            file.write_bytes(data)
    with copy, pytest.raises(StorageError, match=r"is damaged.*its digest is"):
        copy.query(PEOPLE)


def test_write_on_a_damaged_table_is_refused(folder: Path) -> None:
    for file in table_files(folder):
        if file.parent.name == "data":
            data = bytearray(file.read_bytes())
            data[10] ^= 1
            file.write_bytes(data)
    with og.open(folder, durability="os", verify_reads=True) as graph:
        before = graph.commits()
        with pytest.raises(StorageError, match=r"is damaged.*its digest is"):
            graph.mutate('query x() { update Person set { age: 1 } where name = "p1" }')
        assert graph.commits() == before


def test_read_from_s3_of_an_altered_file_is_refused(folder: Path, s3: Bucket) -> None:
    uri = upload_graph(folder, s3, "g")
    expected = read_all(uri, storage_options=s3.options, verify_reads=True)
    assert expected == read_all(folder)
    for file in table_files(folder):
        if file.parent.name != "data":
            continue
        data = bytearray(file.read_bytes())
        data[10] ^= 1
        s3.server.objects.put(s3.name, f"g/{file.relative_to(folder).as_posix()}", bytes(data))
    with pytest.raises(StorageError, match=r"is damaged.*its digest is"):
        read_all(uri, storage_options={**s3.options, "verify_reads": "true"})


def test_verify_reads_that_is_not_true_or_false_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidInput, match="storage option `verify_reads`: expected true or false"):
        read_all(folder, storage_options={"verify_reads": "yes"})
