"""Damaged index files: queries and writes work without the index, `verify` reports it, `repair` builds it again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import omnigraph as og
from omnigraph.cli.main import app
from omnigraph.errors import StorageError
from omnigraph.store.tables.table_indexes import list_indexes
from tests.maintain.damage import delete, flip_bit, truncate
from tests.support.s3 import Bucket

pytest_plugins = ["tests.support.s3_fixtures"]

SCHEMA = "node Person { name: String @key\n age: I32? @index }\nedge Knows: Person -> Person"
AGE = "query q() { match { $p: Person { age: 7 } } return { $p.name as name } }"
DAMAGES: dict[str, Callable[[Path], None]] = {"deleted": delete, "truncated": truncate, "altered": flip_bit}


def fill(graph: og.LocalGraph) -> None:
    graph.load({"Person": [{"name": f"p{number}", "age": number} for number in range(50)]})
    graph.load({"Knows": [{"from": "p1", "to": "p2"}]})
    graph.optimize()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with og.init(tmp_path / "g", schema=SCHEMA, durability="os") as graph:
        fill(graph)
    return tmp_path / "g"


def index_files(path: Path) -> list[Path]:
    return sorted(path.glob("nodes/*/_indices/*/*.lance"))


def damage_all(path: Path, how: str) -> None:
    for file in index_files(path):
        DAMAGES[how](file)


def names(graph: og.Graph, branch: str = "main") -> list[str]:
    return [row["name"] for row in graph.query(AGE, branch=branch).rows()]


def add_branch(path: Path) -> None:
    """Add a branch with rows and index segments of its own."""
    with og.open(path, durability="os") as graph:
        graph.branches.create("side")
        people = [{"name": f"s{number}", "age": number} for number in range(50)]
        graph.load({"Person": people}, branch="side")
        before = len(index_files(path))
        graph.optimize(branch="side")
        assert len(index_files(path)) > before


@pytest.mark.parametrize("branch", ["main", "side"])
@pytest.mark.parametrize("how", ["deleted", "truncated"])
def test_query_and_write_with_damaged_index_give_the_right_rows_and_a_warning(
    path: Path, how: str, branch: str, caplog: pytest.LogCaptureFixture
) -> None:
    add_branch(path)
    damage_all(path, how)
    of_the_branch = ["s7"] if branch == "side" else []
    with caplog.at_level(logging.WARNING), og.open(path, durability="os", cache_bytes=0) as graph:
        assert sorted(names(graph, branch)) == ["p7", *of_the_branch]
        assert graph.get("Person", "p3", branch=branch) == {"id": "p3", "name": "p3", "age": 3}
        graph.mutate('query q() { update Person set { age: 7 } where name = "p8" }', branch=branch)
        graph.mutate('query q() { delete Person where name = "p7" }', branch=branch)
        graph.load({"Person": [{"name": "p9", "age": 7}]}, mode="merge", branch=branch)
        assert sorted(names(graph, branch)) == ["p8", "p9", *of_the_branch]
    assert any("run `omnigraph repair --confirm`" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("branch", ["main", "side"])
def test_verify_reads_with_altered_index_scans_instead(
    path: Path, branch: str, caplog: pytest.LogCaptureFixture
) -> None:
    add_branch(path)
    damage_all(path, "altered")
    with og.open(path, "r", verify_reads=True, cache_bytes=0) as graph:
        assert sorted(names(graph, branch)) == (["p7", "s7"] if branch == "side" else ["p7"])
    assert any("_indices/" in record.getMessage() for record in caplog.records)


def test_query_with_any_index_file_missing_or_of_any_length_gives_the_right_rows(path: Path) -> None:
    add_branch(path)
    tried = 0
    for file in index_files(path):
        data = file.read_bytes()
        for length in (None, *range(0, len(data), max(1, len(data) // 4)), len(data) - 1):
            if length is None:
                delete(file)
            else:
                file.write_bytes(data[:length])
            with og.open(path, "r", cache_bytes=0) as graph:
                found = {branch: sorted(names(graph, branch)) for branch in ("main", "side")}
                assert graph.get("Person", "p3") == {"id": "p3", "name": "p3", "age": 3}
            assert found == {"main": ["p7"], "side": ["p7", "s7"]}, f"{file} with {length} bytes"
            tried += 1
        file.write_bytes(data)
    assert tried > 40


@pytest.mark.parametrize("how", DAMAGES)
def test_optimize_merge_and_backup_with_damaged_index_keep_the_rows(
    path: Path, how: str, tmp_path: Path
) -> None:
    add_branch(path)
    damage_all(path, how)
    with og.open(path, durability="os", verify_reads=True, cache_bytes=0) as graph:
        graph.load({"Person": [{"name": "new", "age": 7}]})
        graph.optimize()
        graph.branches.merge("side")
        assert sorted(names(graph)) == ["new", "p7", "s7"]
        with pytest.raises(StorageError, match="_indices/"):
            graph.backup(tmp_path / "backup")
        graph.repair(confirm=True)
        assert graph.verify().ok
        assert sorted(names(graph)) == ["new", "p7", "s7"]


def test_damaged_data_file_is_an_error_and_not_a_damaged_index(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for file in path.glob("nodes/*/data/*.lance"):
        delete(file)
    with og.open(path, "r", cache_bytes=0) as graph, pytest.raises(StorageError, match="/data/"):
        names(graph)
    assert not caplog.records


@pytest.mark.parametrize("how", DAMAGES)
def test_verify_damaged_index_names_the_repair_and_the_branch_is_intact(path: Path, how: str) -> None:
    names_of_files = {str(file.relative_to(path)) for file in index_files(path)}
    damage_all(path, how)
    with og.open(path, "r") as graph:
        report = graph.verify()
    assert {item.file for item in report.damage} == names_of_files
    assert all("omnigraph repair --confirm" in item.remedy for item in report.damage)
    assert [state.intact for state in report.branches] == [True]


@pytest.mark.parametrize("how", DAMAGES)
def test_repair_damaged_indexes_builds_them_again(path: Path, how: str) -> None:
    damage_all(path, how)
    with og.open(path, durability="os", cache_bytes=0) as graph:
        pin = graph.snapshot().pin("node:Person")
        indexes = list_indexes(graph._repository.tables, pin)
        preview = {row["type_key"]: row for row in graph.repair().datasets}
        assert (preview["node:Person"]["classification"], preview["node:Person"]["action"]) == (
            "damaged",
            "preview",
        )
        assert "_indices/" in preview["node:Person"]["error"]
        assert preview["edge:Knows"]["action"] == "no_op"
        done = {row["type_key"]: row for row in graph.repair(confirm=True).datasets}
        assert done["node:Person"]["action"] == "rebuilt"
        assert done["node:Person"]["lance_head_version"] == pin.number + 1
        assert graph.commits()[0].operation == "repair"
        assert list_indexes(graph._repository.tables, graph.snapshot().pin("node:Person")) == indexes
        assert graph.verify().ok
        assert names(graph) == ["p7"]
        assert {row["action"] for row in graph.repair(confirm=True).datasets} == {"no_op"}


def test_repair_one_damaged_segment_keeps_the_others(path: Path) -> None:
    flip_bit(index_files(path)[0])
    before = {file.parent.name for file in index_files(path)}
    with og.open(path, durability="os") as graph:
        graph.repair(confirm=True)
        assert graph.verify().ok
    after = {file.parent.name for file in index_files(path)}
    assert len(after - before) == 1


def test_repair_damaged_index_of_another_branch_names_the_branch(path: Path) -> None:
    with og.open(path, durability="os") as graph:
        graph.branches.create("side")
        damage_all(path, "truncated")
        rows = graph.repair(confirm=True).datasets
        rebuilt = [row for row in rows if row["action"] == "rebuilt"]
        assert [row["type_key"] for row in rebuilt] == ["node:Person", "node:Person"]
        assert "branch 'side'" in rebuilt[1]["error"]
        assert graph.verify().ok
        assert names(graph, "side") == ["p7"]


def test_repair_with_a_missing_data_file_builds_the_indexes_of_the_other_types(tmp_path: Path) -> None:
    schema = f"{SCHEMA}\nnode City {{ name: String @key }}"
    with og.init(tmp_path / "g", schema=schema, durability="os") as graph:
        graph.load({"City": [{"name": "Bern"}]})
        fill(graph)
        cities = tmp_path / "g" / graph.snapshot().pin("node:City").path
    damage_all(tmp_path / "g", "deleted")
    for file in cities.glob("data/*.lance"):
        delete(file)
    with og.open(tmp_path / "g", durability="os", cache_bytes=0) as graph:
        actions = {row["type_key"]: row["action"] for row in graph.repair(confirm=True).datasets}
        assert actions == {"node:Person": "rebuilt", "node:City": "refused", "edge:Knows": "no_op"}
        assert all("nodes/" + cities.name in str(item.file) for item in graph.verify().damage)
        assert names(graph) == ["p7"]


def test_repair_command_previews_then_rebuilds_indexes(path: Path) -> None:
    damage_all(path, "deleted")
    result = CliRunner().invoke(app, ["repair", str(path)])
    assert "node:Person: preview, damaged" in result.output
    result = CliRunner().invoke(app, ["repair", str(path), "--confirm"])
    assert "node:Person: rebuilt, damaged, version 3 → 4" in result.output
    assert result.exit_code == 0
    assert CliRunner().invoke(app, ["verify", str(path)]).exit_code == 0


def test_repair_damaged_index_on_s3_builds_it_again(s3: Bucket) -> None:
    with og.init(f"{s3.uri}/g", schema=SCHEMA, storage_options=s3.options) as graph:
        fill(graph)
        objects = graph._repository.objects
        for item in list(objects.list()):
            if "/_indices/" in item.key:
                objects.put(item.key, objects.get(item.key).data[:-9])
        with og.open(f"{s3.uri}/g", "r", storage_options=s3.options, cache_bytes=0) as reader:
            assert names(reader) == ["p7"]
        assert [row["action"] for row in graph.repair(confirm=True).datasets] == ["rebuilt", "rebuilt"]
        assert graph.verify().ok
