"""Reads on Spark give the rows that they give in this process, whatever the graph, its state and its storage."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.api.interface.graph_reads import QueryOptions
from omnigraph.api.local.spark_reads import is_for_spark
from omnigraph.api.results.result import Result
from omnigraph.engine.parameters import Bindings
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.lang.gq.query_parameters import bind_params
from omnigraph.spark.engine.spark_query import GraphAccess, collect, read_on_spark
from tests.cli.running import run
from tests.differential.comparing import explain_difference
from tests.differential.engine_rows import open_handle
from tests.differential.golden import Case, check_text, expected_result, load_cases, load_graph
from tests.differential.graphs import graphs
from tests.differential.naive import JsonRow, naive_result
from tests.differential.queries import reads
from tests.differential.stored import LAYOUTS, stored_graph
from tests.differential.test_reads import NOW
from tests.support.places import fresh_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Starting Spark on a busy machine takes a minute, and so may a file of the corpus.
pytestmark = pytest.mark.spark

CASES = [case for case in load_cases() if case.error is None]
# Every fifteenth one; with `OMNIGRAPH_CUTS=all`, as `make faults` sets it, all of them.
STEP = 1 if os.environ.get("OMNIGRAPH_CUTS") == "all" else 15
FILES = sorted({case.file for case in CASES})
# Small queries take Spark longer to compile than to run. One part: there is nothing to divide.
QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
SCHEMA = """
node Person { name: String @key  age: I32?  bio: String? @text  vec: Vector(2)?  score: F64? }
node Firm { name: String @key  size: U64? }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Firm
"""
PEOPLE = 2_500
WORDS = ("red", "green", "blue", "grey", "deep", "pale")
QUERIES = {
    "scan": "match { $p: Person  $p.age > 40  $p.name contains \"7\" } return { $p.name, $p.age, $p.vec }",
    "groups": """match { $p: Person  $p worksAt $f } return { $f.name, $f.size, count($p) as n, avg($p.age) as a,
        max($p.score) as s } order { n desc, a }""",
    "hops": 'match { $p: Person { name: "p7" }  $p knows{1,3} $q } return { $q.name, $q.age } order { $q.name }',
    "pairs": """match { $p: Person  $p.age = 30  $p $w:knows $q  $q.age < $p.age }
        return { $p.name, $w.since, $q.name } order { $w.since desc } limit 25""",
    "negation": "match { $p: Person  $p.age < 3  not { $p knows $q  $q.age > 60 } } return { $p.name }",
    "words": """match { $p: Person  search($p.bio, "deep blue")  $p.age > 10 }
        return { $p.name, bm25($p.bio, "pale blue") as s } order { bm25($p.bio, "pale blue") } limit 40""",
    "fused": """match { $p: Person  $p worksAt $f } return { $p.name }
        order { rrf(nearest($p.vec, [0.5, 0.5]), bm25($p.bio, "red pale")) } limit 30""",
    "operators": """match { $p: Person  $p.age > 10
        search([$p.bio, $p.name], "\\"deep blue\\" OR gre* AND NOT pale") }
        return { $p.name, snippet($p.bio, "blue") as cut, bm25([$p.bio ^ 2, $p.name], "gre*^2 NOT p3") as s }
        order { bm25([$p.bio ^ 2, $p.name], "gre*^2 \\"deep blue\\" NOT p3") } limit 40""",
    "weighted": """match { $p: Person  $p worksAt $f }
        return { $p.name, fuse(bm25($p.bio, "red"), bm25($p.bio, "blue")) as s }
        order { fuse(nearest($p.vec, [0.5, 0.5]) ^ 0.3, bm25($p.bio, "red pale") ^ 0.7, bm25($p.name, "p7")) }
        limit 30""",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def quick(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    yield
    for name, kept in before.items():
        if kept is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, kept)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], og.LocalGraph]:
    """The graphs of the corpus in all layouts."""
    made: dict[tuple[str, str], og.LocalGraph] = {}
    for name in {case.graph for case in CASES}:
        for layout in LAYOUTS:
            place = tmp_path_factory.mktemp("corpus") / "g"
            stored_graph(load_graph(name), str(place), layout)
            made[name, layout] = open_handle(str(place))
    return made


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> og.LocalGraph:
    """A graph of more rows than travel in a plan, in several fragments, some deleted; on `old` it has no edges."""
    graph = og.init(str(tmp_path_factory.mktemp("people") / "g"), schema=SCHEMA)
    firms = [{"name": f"f{n}", "size": 2**63 + n if n % 3 else None} for n in range(7)]
    graph.load({"Firm": firms})
    for part in range(3):
        graph.load({"Person": [_person(n) for n in range(part, PEOPLE, 3)]})
    graph.branches.create("old")
    links = [(n, (n * 7 + k) % PEOPLE) for n in range(PEOPLE) for k in range(1, 3)]
    doubled = [*links, *links[:50], (3, 3), (7, 7)]
    graph.load({"Knows": [{"from": f"p{a}", "to": f"p{b}", "since": _day(a)} for a, b in doubled]})
    graph.load({"WorksAt": [{"from": f"p{n}", "to": f"f{n % 7}"} for n in range(0, PEOPLE, 2)]})
    graph.mutate("query gone() { delete Person where age = 33 }")
    return graph


def _person(n: int) -> dict[str, Any]:
    return {
        "name": f"p{n}",
        "age": n % 77 if n % 10 else None,
        "bio": None if n % 11 == 0 else " ".join(WORDS[(n * k) % 6] for k in range(1, 2 + n % 5)),
        "vec": None if n % 13 == 0 else [n % 17 / 16, n % 5 / 4],
        "score": None if n % 50 == 0 else n / 8,
    }


def _day(n: int) -> str | None:
    return None if n % 4 == 0 else f"20{n % 25:02}-01-{n % 28 + 1:02}"


def rows_by_tasks(
    graph: og.LocalGraph, text: str, params: Mapping[str, Any], spark: SparkSession
) -> list[JsonRow]:
    """The rows of a read for which tasks read every table, also one of a single row."""
    snapshot = graph.snapshot()
    _, query, _ = graph._prepare_read(text, QueryOptions(params, at=snapshot))
    session = replace(
        graph._reader.session(snapshot), bindings=Bindings(bind_params(query.params, params), NOW)
    )
    place = GraphAccess(graph.uri, graph._repository.objects.options, small_rows=-1)
    table = collect(read_on_spark(session, graph._reader.plan(snapshot, query), spark, place), query)
    return Result(table, "", "", types=tuple(output.type for output in query.outputs)).rows()


def compared(graph: og.LocalGraph, body: str, spark: SparkSession, **at: Any) -> list[JsonRow]:
    """The rows on Spark, which are those without it; in the same order where the query orders them."""
    text = f"query q() {{ {body} }}"
    here = graph.query(text, engine="local", **at)
    there = graph.query(text, engine="spark", spark=spark, **at)
    assert there.table.schema == here.table.schema
    assert (there.commit_id, there.branch, there.snapshot) == (here.commit_id, here.branch, here.snapshot)
    left, right = here.rows(), there.rows()
    if " order " not in body:
        left, right = sorted(left, key=str), sorted(right, key=str)
    # As text, because a NaN does not equal itself; and to the last digit.
    assert str(right) == str(left)
    return left


# --- the corpus ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES)
def test_spark_query_of_the_golden_corpus_returns_its_rows(
    file: str, spark: SparkSession, stored: Mapping[tuple[str, str], og.LocalGraph]
) -> None:
    differences = {}
    for number, case in enumerate([case for case in CASES if case.file == file][::STEP]):
        layout = list(LAYOUTS)[number % len(LAYOUTS)]
        query = check_text(case.text, load_graph(case.graph))
        graph = stored[case.graph, layout]
        found = graph.query(case.text, case.params, engine="spark", spark=spark)
        difference = explain_difference(query, expected_result(case, query), found.rows())
        if found.table.schema != graph.query(case.text, case.params).table.schema:
            difference = f"columns {found.table.schema}"
        if difference:
            differences[case.title, layout] = difference
    assert differences == {}


@pytest.mark.parametrize("case", CASES[::25], ids=str)
def test_spark_query_with_tables_read_by_tasks_returns_the_golden_rows(
    case: Case, spark: SparkSession, stored: Mapping[tuple[str, str], og.LocalGraph]
) -> None:
    query = check_text(case.text, load_graph(case.graph))
    rows = rows_by_tasks(stored[case.graph, "half indexed"], case.text, case.params, spark)
    assert explain_difference(query, expected_result(case, query), rows) is None


@given(st.data())
@settings(
    max_examples=3,
    deadline=None,
    print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_spark_query_generated_at_random_equals_the_reference(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    graph = data.draw(graphs(), label="graph")
    layout = data.draw(st.sampled_from(list(LAYOUTS)), label="layout")
    place = str(tmp_path_factory.mktemp("random") / "g")
    stored_graph(graph, place, layout)
    with open_handle(place) as handle:
        for number in range(4):
            read = data.draw(reads(graph), label=f"read {number}")
            query = check_text(read.text, graph)
            expected = naive_result(query, graph, bind_params(query.params, read.params), NOW)
            rows = handle.query(read.text, read.params, engine="spark", spark=spark).rows()
            difference = explain_difference(query, expected, rows)
            assert difference is None, f"{difference}\n{read.text}"


# --- larger tables, other states -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", QUERIES)
def test_spark_query_over_fragments_and_deletions_returns_the_same_rows(
    name: str, people: og.LocalGraph, spark: SparkSession
) -> None:
    assert compared(people, QUERIES[name], spark)


def test_spark_query_on_branch_or_commit_reads_that_state(people: og.LocalGraph, spark: SparkSession) -> None:
    everybody = "match { $p: Person } return { count($p) as n, count($p.age) as ages }"
    first = people.commits("old")[-3].id
    counts = [
        compared(people, everybody, spark)[0]["n"],
        compared(people, everybody, spark, branch="old")[0]["n"],
        compared(people, everybody, spark, at=first)[0]["n"],
    ]
    assert counts == [PEOPLE - len([n for n in range(PEOPLE) if n % 10 and n % 77 == 33]), PEOPLE, 834]


def test_spark_traversal_with_long_bound_ends_without_new_nodes(spark: SparkSession, tmp_path: Path) -> None:
    ring = og.init(str(tmp_path / "ring"), schema=SCHEMA)
    ring.load({"Person": [{"name": f"p{n}"} for n in range(9)]})
    ring.load({"Knows": [{"from": f"p{n}", "to": f"p{(n + 1) % 8}"} for n in range(8)]})
    body = 'match { $p: Person { name: "p0" }  $p knows{%s} $q } return { $q.name } order { $q.name }'
    assert [row["q.name"] for row in compared(ring, body % "1,100000", spark)] == [
        f"p{n}" for n in range(1, 8)
    ]
    assert [row["q.name"] for row in compared(ring, body % "5,6", spark)] == ["p5", "p6"]


def test_spark_query_distinguishes_names_by_case(spark: SparkSession, tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "g"), schema="node N { name: String @key  ab: I32?  aB: I32? }")
    graph.load({"N": [{"name": "x", "ab": 1, "aB": 2}, {"name": "y", "ab": 2, "aB": 3}]})
    body = "match { $nn: N  $nN: N  $nn.aB = $nN.ab } return { $nn.ab as v, $nN.aB as vV }"
    assert compared(graph, body, spark) == [{"v": 1, "vV": 3}]


@pytest.fixture(scope="module")
def corners(tmp_path_factory: pytest.TempPathFactory) -> og.LocalGraph:
    graph = og.init(
        str(tmp_path_factory.mktemp("corners") / "g"),
        schema="node N { name: String @key }  edge To: N -> N { w: F64? }  edge By: N -> N",
    )
    graph.load({"N": [{"name": name} for name in "abc"]})
    graph.load({"To": [{"from": "a", "to": "b", "w": -0.0}, {"from": "b", "to": "c", "w": 12.5}]})
    graph.load({"By": [{"from": "a", "to": "c"}]})
    return graph


def test_spark_query_optional_variable_in_negation_stays_null(
    corners: og.LocalGraph, spark: SparkSession
) -> None:
    body = """match { $n: N  optional { $n by $m }  not { $n to $o  $m.name is null } }
        return { $n.name } order { $n.name }"""
    assert [row["n.name"] for row in compared(corners, body, spark)] == ["a", "c"]


def test_spark_query_in_long_list_matches_both_zeros(corners: og.LocalGraph, spark: SparkSession) -> None:
    listed = ", ".join(f"{n}.0" for n in range(12))
    body = f"match {{ $n $e:to $o  $e.w in [{listed}] }} return {{ $n.name }}"
    assert compared(corners, body, spark) == [{"n.name": "a"}]


@pytest.mark.parametrize(("literal", "rows"), [("1", 3), ("2", 0)])
def test_spark_query_condition_on_constants_is_applied(
    literal: str, rows: int, corners: og.LocalGraph, spark: SparkSession
) -> None:
    body = f"match {{ $n: N  1 = {literal} }} return {{ $n.name }}"
    assert len(compared(corners, body, spark)) == rows


# --- data frames ---------------------------------------------------------------------------------------------


def test_query_dataframe_has_exact_types_and_order(people: og.LocalGraph, spark: SparkSession) -> None:
    text = """query q($least: U32) { match { $p: Person  $p.age >= $least  $p worksAt $f }
        return { $f.name, $f.size, count($p) as n, max($p.age) as m } order { n desc, m } }"""
    frame = people.dataframe(text, {"least": 20}, spark=spark)
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("f.name", "string"), ("f.size", "decimal(20,0)"), ("n", "bigint"), ("m", "int"),
    ]  # fmt: skip
    found = [tuple(row) for row in frame.collect()]
    here = [tuple(row.values()) for row in people.query(text, {"least": 20}).rows()]
    assert found == [(name, None if size is None else Decimal(size), n, m) for name, size, n, m in here]


def test_query_dataframe_keeps_its_state_and_time(spark: SparkSession, tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "g"), schema="node N { name: String @key }")
    graph.load({"N": [{"name": f"n{n}"} for n in range(1_200)]})
    text = "query q() { match { $n: N } return { $n.name, now() as t } }"
    started = datetime.now(UTC).replace(tzinfo=None)
    frame = graph.dataframe(text, spark=spark)
    made = datetime.now(UTC).replace(tzinfo=None)
    graph.mutate('query more() { insert N { name: "late" } }')
    assert frame.count() == 1_200
    times = {row["t"] for row in frame.select("t").distinct().collect()}
    assert len(times) == 1
    assert started.replace(microsecond=started.microsecond // 1_000 * 1_000) <= times.pop() <= made
    assert graph.dataframe(text, spark=spark).where("`n.name` = 'late'").count() == 1


# --- choosing ------------------------------------------------------------------------------------------------


def test_query_auto_uses_spark_above_a_row_count(
    people: og.LocalGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = people.snapshot()
    text = "query q() { match { $f: Firm } return { $f.name } }"
    _, query, _ = people._prepare_read(text, QueryOptions(at=snapshot))
    choices = [
        is_for_spark(engine, people._repository, snapshot, query) for engine in ("auto", "local", "spark")
    ]
    assert choices == [False, False, True]
    monkeypatch.setattr("omnigraph.api.local.spark_reads.SPARK_ROWS", 6)
    assert is_for_spark("auto", people._repository, snapshot, query)
    monkeypatch.setattr("omnigraph.api.local.spark_reads.SPARK_ROWS", 7)
    assert not is_for_spark("auto", people._repository, snapshot, query)


def test_spark_query_of_unsupported_kind_raises_error(spark: SparkSession, people: og.LocalGraph) -> None:
    text = "query q() { match { $p: Person } return { $p.name } }"
    graph = og.init(fresh_memory(), schema=SCHEMA)
    with pytest.raises(InvalidInput, match="memory of this process"):
        graph.query(text, engine="spark", spark=spark)
    with pytest.raises(InvalidInput, match="memory of this process"):
        graph.dataframe(text, spark=spark)
    with pytest.raises(InvalidInput, match="unknown engine 'flink'"):
        graph.query(text, engine="flink")  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        people.dataframe(text, at="no-such-commit", spark=spark)
    with pytest.raises(InvalidInput, match="k above 0"):
        people.query(
            """query q($k: I64) { match { $p: Person } return { $p.name }
            order { rrf(bm25($p.bio, "red"), bm25($p.bio, "blue"), $k) } limit 1 }""",
            {"k": 0},
            engine="spark",
            spark=spark,
        )


@pytest.mark.usefixtures("spark")
def test_command_line_query_runs_on_spark(
    people: og.LocalGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path))
    text = "query q() { match { $f: Firm } return { $f.name } order { $f.name } limit 2 }"
    outcome = run("query", "-e", text, "--store", people.uri, "--engine", "spark", "--json")
    assert json.loads(outcome.stdout)["rows"] == [{"f.name": "f0"}, {"f.name": "f1"}]
    refused = run("query", "-e", text, "--store", people.uri, "--engine", "flink")
    assert refused.code == 2
