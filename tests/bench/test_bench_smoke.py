"""The benchmark at a tiny size, without the peer that is not installed here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench import branches, single_commit
from bench.data import Size, make_tables
from bench.draw import Draw
from bench.lance_peer import RawLance
from bench.measure import Effort, Timing, measure
from bench.report import Line, Result
from bench.run import main
from bench.shapes import POINT, READS, SCHEMA, WRITES, Params, Read, Write
from omnigraph.lang.gq.check import check_query
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.lang.source import Source
from tests.bench.walk import ANSWERS, Walk, Walking
from tests.support.s3 import Bucket
from tests.support.s3_fixtures import s3, s3_server

__all__ = ["s3", "s3_server"]

TINY = Size.scaled(0.001)
ONE_TURN = Effort(turns=1, seconds=60.0)


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    return make_tables(TINY)


def test_the_same_seed_makes_the_same_graph_and_another_seed_another(tables: dict[str, pa.Table]) -> None:
    assert make_tables(TINY) == tables
    assert not make_tables(TINY, seed=7)["Knows"].equals(tables["Knows"])


def test_the_graph_has_its_size_and_neither_loops_nor_parallel_edges(tables: dict[str, pa.Table]) -> None:
    knows = tables["Knows"]
    assert (tables["Person"].num_rows, knows.num_rows) == (TINY.people, TINY.friendships)
    assert not pc.any(pc.equal(knows["from"], knows["to"])).as_py()
    assert knows.group_by(["from", "to"]).aggregate([]).num_rows == knows.num_rows


def test_a_few_people_are_known_by_many() -> None:
    known = make_tables(Size.scaled(0.02))["Knows"].group_by("to").aggregate([("to", "count")])
    counts = np.sort(known["to_count"].to_numpy())
    assert counts[-1] > 20 * np.median(counts)


@pytest.mark.parametrize("shape", [*READS, *WRITES], ids=lambda shape: shape.name)
def test_every_shape_is_valid_in_our_language(shape: Read | Write) -> None:
    source = Source(shape.gq, shape.name)
    queries = parse_queries(source).queries
    assert [check_query(query, load_schema(SCHEMA), source).name for query in queries]


def test_every_read_has_an_answer_of_the_walk() -> None:
    assert set(ANSWERS) == {shape.name for shape in READS}


def test_new_edges_join_people_who_are_not_joined_yet(tables: dict[str, pa.Table]) -> None:
    draw = Draw(tables, seed=1)
    chosen = [draw.strangers() for _ in range(300)]
    taken = set(zip(tables["Knows"]["from"].to_pylist(), tables["Knows"]["to"].to_pylist(), strict=True))
    assert len(set(chosen) - taken) == 300
    assert all(one != other for one, other in chosen)


def test_raw_lance_answers_as_the_walk_does_and_keeps_what_it_appends(
    tmp_path: Path, tables: dict[str, pa.Table]
) -> None:
    RawLance.load(tmp_path, tables, {})
    lance = RawLance.open(tmp_path)
    assert measure(POINT, [Walking(Walk(tables)), lance], Draw(tables, 3), ONE_TURN).mismatches == []
    insert = WRITES[0]
    timing = measure(insert, [lance], Draw(tables, 3), ONE_TURN)
    assert len(timing.samples["lance"]) == 4
    assert RawLance.open(tmp_path).read(POINT, {"n": "new1"}).num_rows == 1


def test_a_wrong_answer_is_reported_with_its_parameters(tables: dict[str, pa.Table]) -> None:
    wrong = Walk(tables)
    for person in wrong.people.values():
        person["age"] += 1
    other = Walking(wrong)
    other.name = "wrong"
    timing = measure(POINT, [Walking(Walk(tables)), other], Draw(tables, 3), ONE_TURN)
    assert len(timing.mismatches) == 10
    assert "walk and wrong differ" in timing.mismatches[0]


def test_the_order_of_rows_counts_only_where_it_was_asked_for(tables: dict[str, pa.Table]) -> None:
    class Reversed(Walking):
        name = "reversed"

        def read(self, shape: Read, params: Params) -> pa.Table:
            rows = super().read(shape, params)
            return rows.take(np.arange(rows.num_rows)[::-1])

    systems = [Walking(Walk(tables)), Reversed(Walk(tables))]
    by_name = {shape.name: measure(shape, systems, Draw(tables, 3), ONE_TURN).mismatches for shape in READS}
    assert by_name["edges by city of the target"] == []
    assert by_name["top 10 by in-degree"]


def test_goals_are_met_up_to_the_bound_and_missed_above_it() -> None:
    timing = Timing("x", {"omnigraph": [2.0], "ladybug": [2.0], "lance": [1.0]})
    lines = Result(timing, {"ladybug": 1.0, "lance": 1.9}).lines
    assert [(line.peer, line.ratio, line.ok) for line in lines] == [
        ("ladybug", 1.0, True),
        ("lance", 2.0, False),
    ]
    assert Line("x", 1_001.0, "ladybug", 5_000.0, goal_ms=1_000.0).ok is False


def test_the_peers_alone_can_be_measured_and_written_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    arguments = ["--systems", "lance", "--scale", "0.001", "--turns", "1", "--json", str(file)]
    assert main(arguments) == 0
    lines = json.loads(file.read_text(encoding="utf-8"))["lines"]
    measured = {line["shape"] for line in lines if line["peer_ms"] is not None}
    assert measured == {"point lookup by key", "insert one person by key"}
    assert "point lookup by key" in capsys.readouterr().out


def test_single_commit_benchmark_measures_every_write_and_phase(tmp_path: Path) -> None:
    times = single_commit.measure(single_commit.steps(tmp_path), 1)
    assert {len(found) for found in times.values()} == {1}
    assert len(times) == 9
    phases = single_commit.profile(tmp_path, 1)
    assert all(phases["insert"].values())


def test_branches_benchmark_measures_every_operation(tmp_path: Path, s3: Bucket) -> None:
    paths = {number: branches.build(tmp_path, number, commits=2) for number in (2, 4)}
    times = branches.time_table(branches.measure(paths, 1, "os"), [2, 4])
    counts = {number: branches.count(path, number, s3) for number, path in paths.items()}
    traffic = branches.traffic_table(counts, [2, 4])
    assert [row[0] for row in times[1:]] == [row[0] for row in traffic[1:]]
    assert len(times) == 10
    assert traffic[1][1].startswith("5, ")
