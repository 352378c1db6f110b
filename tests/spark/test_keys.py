"""Keys checked by Spark: queries answer what the database of one process answers, and loads end alike."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlglot.expressions import Select, select

import omnigraph as og
from omnigraph.engine.duckdb import Workspace
from omnigraph.graph.repository import Repository
from omnigraph.graph.snapshot import Snapshot
from omnigraph.load import distributed
from omnigraph.load.distributed import LoadTasks
from omnigraph.load.key_checks import KeyTables
from omnigraph.load.key_readers import KeyFileReader
from omnigraph.rules import set_queries as queries
from omnigraph.rules.load_mode import WriteMode
from omnigraph.rules.violations import MAX_REPORTED
from omnigraph.spark.engine.key_tables import SparkKeys
from tests.spark import loads
from tests.spark.loads import (
    BEFORE,
    MODES,
    SCHEMA,
    Record,
    backwards_and_twice,
    begun,
    compared,
    firm,
    knows,
    leads,
    note,
    person,
    text_of,
)
from tests.spark.test_split_staging import faults, records
from tests.support.s3 import Bucket

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.support.s3_fixtures"]
pytestmark = pytest.mark.spark

NODE, EDGE = 1, 2
# Text that a query, a shell or a sort might read as something else, in no order.
ODD = [
    *(
        "${spark.app.name}",
        "${env:HOME}",
        "it's",
        'a"b',
        "a\\b",
        "\\n",
        "\n",
        "\t",
        "nul\0x",
        "",
        " ",
        ":text0",
    ),
    *(
        "a",
        "A",
        "\u00e9",
        "e\u0301",
        "\uffee",
        "\U0001f600",
        "\x7f",
        "\u2028",
        "--",
        "/*",
        ";",
        "`",
        "%",
        "null",
    ),
]
NAN = float("nan")
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "property1": (pa.string(), [None, *ODD[:6], "\U0001f600", "\uffee"]),
    "property2": (pa.float64(), [None, NAN, 0.0, 1e300, -1e-300, float("inf"), float("-inf"), 0.1]),
    "property3": (pa.float32(), [None, NAN, 0.0, 0.1, -0.1]),
    "property4": (pa.uint64(), [None, 0, 2**63 - 1, 2**63, 2**64 - 1]),
    "property5": (pa.uint32(), [None, 0, 2**32 - 1]),
    "property6": (pa.date32(), [None, date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)]),
    "property7": (pa.timestamp("ms"), [None, datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_000)]),  # noqa: DTZ001
    "property8": (pa.bool_(), [None, True, False]),
    "property9": (pa.int64(), [None, -(2**63), 2**63 - 1]),
    "property10": (pa.int32(), [None, 7]),
}


PAIRS = list(zip(list(VALUES)[::2], list(VALUES)[1::2], strict=True))

# --- the same answers ---------------------------------------------------------------------------------------


def some_ids(prefix: str, count: int, chosen: random.Random) -> list[str]:
    """Different ids, many of them odd, in no order."""
    found = [prefix + text for text in ODD] + [f"{prefix}{number}" for number in range(count - len(ODD))]
    chosen.shuffle(found)
    return found


def node_keys(ids: list[str], chosen: random.Random, first: int) -> pa.RecordBatch:
    arrays = [pa.array(ids)]
    for kind, values in VALUES.values():
        arrays.append(pa.array(chosen.choices(values, k=len(ids)), kind))
    names = ["id", *VALUES, queries.PLACE, queries.SOURCE, queries.POSITION]
    places = pa.array(range(len(ids)), pa.int64())
    sources = pa.array([number % 3 for number in range(len(ids))], pa.int32())
    return pa.RecordBatch.from_arrays(
        [*arrays, places, sources, pa.array(range(first, first + len(ids)), pa.int64())], names
    )


def edge_keys(prefix: str, ends: list[str], count: int, chosen: random.Random) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(some_ids(prefix, count, chosen)),
            "src": pa.array(chosen.choices(ends, k=count)),
            "dst": pa.array(chosen.choices(ends, k=count)),
            queries.POSITION: pa.array(range(count), pa.int64()),
        }
    )


def filled(tables: KeyTables) -> None:
    """The same keys for everybody: new and committed nodes and edges that have much in common."""
    chosen = random.Random(7)
    old, new = some_ids("n", 150, chosen), some_ids("n", 300, chosen)[:160]
    new += [f"x{text}" for text in ODD]
    given_ = chosen.choices(new, k=200)
    committed = node_keys(old, chosen, 0).append_column(queries.ADDRESS, pa.array(range(150), pa.int64()))
    tables.append(queries.committed_keys(NODE), [committed])
    tables.append(queries.new_keys(NODE), [node_keys(new[:90], chosen, 0), node_keys(new[90:], chosen, 90)])
    tables.append(queries.input_keys(NODE), [node_keys(given_, chosen, 1 << 41)])
    ends = [*old[:100], *new[:100], *some_ids("gone", 170, chosen)]
    kept = edge_keys("e", ends, 260, chosen)
    address = pa.array([(number % 3) << 32 | number for number in range(260)], pa.int64())
    tables.append(queries.committed_keys(EDGE), [kept.append_column(queries.ADDRESS, address)])
    tables.append(queries.new_keys(EDGE), [edge_keys("e", ends, 300, chosen)])
    tables.derive("last", queries.last_records(NODE))
    repeated = queries.duplicate_values(NODE, ("property1",), kept=True)
    tables.derive("wrong", queries.all_violations(repeated))


@pytest.fixture(scope="module")
def both(spark: SparkSession) -> Iterator[tuple[KeyTables, KeyTables]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Workspace(Path(folder)) as workspace,
        SparkKeys(spark) as keys,
    ):
        filled(workspace)
        filled(keys)
        yield workspace, keys


def answer(tables: KeyTables, query: Select) -> pa.Table:
    return pa.Table.from_batches(list(tables.stream(query)))


ASKED: dict[str, Select] = {
    "repeated by others than the stored row": queries.duplicate_values(
        NODE, ("property1",), kept=True, wrong="wrong"
    ),
    "count of replaced nodes": queries.count_replaced(NODE),
    "superseded": queries.superseded_positions(NODE),
    "count of rewritten": queries.count_replaced(EDGE),
    "taken": queries.existing_ids(EDGE),
    "origins": queries.origins(NODE, [f"x{text}" for text in ODD]),
    "repeated in the input": queries.duplicate_values(NODE, ("property1",), kept=False, superseded=True),
    # Two types at a time, with what is committed and without.
    **{
        f"repeated {' and '.join(pair)}": queries.duplicate_values(NODE, pair, kept=kept)
        for pair, kept in zip(PAIRS, [True, False] * len(PAIRS), strict=False)
    },
    "dangling": queries.missing_endpoints(
        EDGE, "src", (queries.new_keys(NODE), queries.committed_keys(NODE))
    ),
    "dangling in one": queries.missing_endpoints(EDGE, "dst", (queries.committed_keys(NODE),)),
    "orphaned": queries.orphaned_endpoints(EDGE, "dst", NODE),
    **{f"counts of {mode}": queries.cardinality_violations(EDGE, mode, None, 2, 3) for mode in MODES},
    "counts without sources": queries.cardinality_violations(EDGE, "overwrite", NODE, 3, None),
}


# Every second query is asked each time, the others with all that takes long.
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (number % 2)) for number, name in enumerate(ASKED)],
)
def test_key_query_on_spark_equals_local_result(both: tuple[KeyTables, KeyTables], name: str) -> None:
    wanted, found = (answer(tables, ASKED[name]) for tables in both)
    assert wanted.num_rows
    assert found.column_names == wanted.column_names
    # As text, because NaN is not itself.
    assert repr(found.cast(wanted.schema).to_pylist()) == repr(wanted.to_pylist())


def test_key_query_over_report_limit_counts_all_rows(both: tuple[KeyTables, KeyTables]) -> None:
    asked = queries.missing_endpoints(EDGE, "dst", (queries.committed_keys(NODE),))
    here, there = (answer(tables, queries.count_query(asked))[queries.TOTAL][0].as_py() for tables in both)
    found = answer(both[1], asked)
    assert found.num_rows == MAX_REPORTED < here == there
    ids = found["id"].to_pylist()
    assert ids == sorted(ids)


@pytest.mark.parametrize(
    "query",
    [queries.replaced_addresses(EDGE), select("*").from_("last")],
    ids=["addresses of rewritten", "last records"],
)
def test_unordered_key_query_on_spark_returns_the_same_rows(
    both: tuple[KeyTables, KeyTables], query: Select
) -> None:
    wanted, found = (answer(tables, query) for tables in both)
    assert wanted.num_rows
    assert found.column_names == wanted.column_names
    told = [sorted(map(repr, table.cast(wanted.schema).to_pylist())) for table in (found, wanted)]
    assert told[0] == told[1]


def test_key_stream_returns_ordered_positions_in_batches(spark: SparkSession) -> None:
    count = 30_000
    schema = pa.schema([("id", pa.string()), (queries.POSITION, pa.int64())])

    def read(part: int) -> Iterator[pa.RecordBatch]:
        import pyarrow

        numbers = range(part, 3 * count, 3)
        ids = [f"n{number % count}" for number in numbers]
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array(ids), pyarrow.array(numbers)], schema=schema)

    with SparkKeys(spark) as keys:
        keys.gather(queries.input_keys(NODE), schema, [2, 0, 1], read, 3 * count)
        batches = list(keys.stream(queries.superseded_positions(NODE)))
    assert len(batches) > 2
    assert pa.Table.from_batches(batches).column(0).to_pylist() == list(range(2 * count))


# --- what a session is left with ----------------------------------------------------------------------------


def left_in(spark: SparkSession) -> tuple[list[str], int]:
    """The tables of a session, and how many frames its executors keep."""
    context: Any = spark.sparkContext
    return [item.name for item in spark.catalog.listTables()], context._jsc.getPersistentRDDs().size()


def test_spark_keys_after_failure_leave_no_view_or_setting(spark: SparkSession) -> None:
    before, settings_ = left_in(spark), spark.conf.getAll

    def failing() -> None:
        with SparkKeys(spark) as keys, SparkKeys(spark) as others:
            for number, tables in enumerate((keys, others)):
                ids = pa.RecordBatch.from_pydict({"id": ["a", "a"], queries.POSITION: [number, number + 2]})
                tables.append(queries.input_keys(NODE), [ids])
                tables.derive("gone", queries.superseded_positions(NODE))
                assert answer(tables, select("*").from_("gone")).num_rows == 1
            assert left_in(spark)[0] != before[0]
            assert left_in(spark)[1] > before[1]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert left_in(spark) == before
    assert spark.conf.getAll == settings_


def test_spark_keys_append_keeps_all_keys(spark: SparkSession) -> None:
    batch = pa.RecordBatch.from_pydict({"id": ["b", "a"]})
    with SparkKeys(spark) as keys:
        assert keys.append(queries.new_keys(NODE), [batch.slice(0, 0)]) == 0
        assert not list(keys.stream(queries.duplicate_values(NODE, ("id",), kept=False, by_id=True)))
        assert keys.append(queries.new_keys(NODE), [batch]) == 2
        assert keys.append(queries.new_keys(NODE), [batch]) == 2
        found = answer(keys, queries.duplicate_values(NODE, ("id",), kept=False, by_id=True))
    assert [row["id"] for row in found.to_pylist()] == ["a", "b"]


# --- loads --------------------------------------------------------------------------------------------------


@pytest.fixture
def _checked_by_tasks(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    monkeypatch.setattr(distributed, "MAX_LOCAL_KEYS", -1)
    monkeypatch.setattr(loads, "LoadTasks", partial(LoadTasks, open_keys=partial(SparkKeys, spark)))


@pytest.fixture
def _shuffled(spark: SparkSession) -> Iterator[None]:
    """Joins of keys that are moved to where their hash says, as those of many keys are; a part is large at once."""
    changed = {
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.shuffle.partitions": "5",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1000",
        "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "1000",
        "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "1.5",
    }
    with changed_settings(spark, changed):
        yield


@contextmanager
def changed_settings(spark: SparkSession, changed: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in changed}
    for name, value in changed.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, kept in before.items():
            assert kept is not None
            spark.conf.set(name, kept)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return begun(tmp_path_factory.mktemp("keys"))


def saved(folder: Path, lines: Iterable[Record | str]) -> Path:
    path = folder / "in.jsonl"
    path.write_text(text_of(lines), encoding="utf-8")
    return path


@pytest.mark.long
@pytest.mark.usefixtures("_checked_by_tasks")
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    given_=st.lists(records, min_size=4, max_size=9),
    wrong=st.lists(st.tuples(st.integers(0, 9), st.one_of(st.just(""), faults)), max_size=1),
    mode=st.sampled_from(MODES),
    split_bytes=st.integers(60, 250),
)
def test_load_with_keys_joined_on_spark_equals_local_load(
    shared: Repository,
    tmp_path: Path,
    given_: list[Record],
    wrong: list[tuple[int, str]],
    mode: WriteMode,
    split_bytes: int,
) -> None:
    lines: list[Record | str] = list(given_)
    for place, line in wrong:
        lines.insert(place, line)
    path = saved(tmp_path, lines)
    compared(shared, path, mode, rejecting=True, split_bytes=split_bytes, run=backwards_and_twice)


@pytest.mark.usefixtures("_checked_by_tasks")
def test_spark_keys_are_read_by_tasks(
    shared: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("keys were read in this process")

    # Tasks are other processes, in which nothing of this is changed.
    monkeypatch.setattr(KeyFileReader, "__call__", refused)
    monkeypatch.setattr(Snapshot, "scan_batches", refused)
    lines: list[Record | str] = [person(f"q{number}", mail=f"q{number}") for number in range(5)]
    lines += [knows("k8", "q0", "q4"), leads("l8", "q1", "f0"), firm("f9"), knows("k0", "p0", "q1")]
    lines += [knows("k8", "q1", "q4"), person("p0", mail="y")]
    found = loads.apart(shared, saved(tmp_path, lines), "merge", loads.forked(shared)[1], split_bytes=90)
    assert found.outcome is not None, found.error
    assert found.outcome.superseded == 1
    assert found.outcome.affected["edge:Knows"] == {"inserted": 1, "updated": 1, "deleted": 0}


@pytest.fixture(scope="module")
def colliding(spark: SparkSession) -> list[tuple[str, str]]:
    """Pairs of strings that Spark's hash does not tell apart."""
    pairs = [("c104278", "c58356"), ("c108981", "c32023"), ("c152242", "c293943"), ("c21308", "c3951")]
    equal = " AND ".join(f"hash('{one}') = hash('{other}')" for one, other in pairs)
    assert spark.sql(f"SELECT {equal} AS equal").head() == (True,)
    return pairs


@pytest.mark.usefixtures("_checked_by_tasks", "_shuffled")
def test_key_checks_with_equal_hashes_compare_the_ids(
    tmp_path: Path, colliding: list[tuple[str, str]]
) -> None:
    graph = begun(tmp_path)
    path = saved(tmp_path, [person(one, mail=one) for one, _ in colliding])
    assert loads.at_once(graph, path, "append", "main").error is None
    edges = [
        knows(f"{at}{name}", one, name) for at, (one, other) in enumerate(colliding) for name in (one, other)
    ]
    # The ends are there in no record, only in what has the same hash.
    refused = compared(graph, saved(tmp_path, edges), "append", split_bytes=500).error
    assert refused is not None
    assert sorted(item["value"] for item in refused[5]) == sorted(other for _, other in colliding)
    # Each has what the other one of its hash has.
    nodes = [person(one, mail=other) for pair in colliding for one, other in (pair, pair[::-1])]
    notes = [note(name, text) for text in ("first", "last") for pair in colliding for name in pair]
    found = compared(graph, saved(tmp_path, [*nodes, *notes, *edges]), "merge", split_bytes=500).outcome
    assert found is not None
    each = len(colliding)
    assert found.affected["node:Person"] == {"inserted": each, "updated": each, "deleted": 0}
    assert found.superseded == 2 * each


@pytest.mark.long
@pytest.mark.usefixtures("_checked_by_tasks", "_shuffled")
def test_cardinality_check_with_skewed_edges_reports_the_same_violations(
    shared: Repository, tmp_path: Path
) -> None:
    nodes: list[Record | str] = [person(f"q{number}") for number in range(50)]
    edges = [knows(f"k{n + 9}", "q0" if n % 10 else f"q{n % 50}", f"q{n % 49}") for n in range(2_000)]
    whole = compared(shared, saved(tmp_path, [*nodes, *edges]), "merge", split_bytes=40_000)
    assert whole.outcome is not None, whole.error
    assert whole.outcome.edges == {"Knows": 2_000}
    led = [leads(f"l{n + 9}", "q0" if n % 10 else f"q{n % 50}", "f0") for n in range(500)]
    lost = [knows("k5", "q0", "nobody")]
    for more in (led, lost):
        refused = compared(shared, saved(tmp_path, [*nodes, *edges, *more]), "merge", split_bytes=40_000)
        assert refused.error is not None
        assert refused.error[4]["violations"] == (5 if more is led else 1)


# --- which of the two ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "elsewhere"), [(6, False), (5, True)])
def test_load_over_local_key_limit_joins_keys_on_spark(
    shared: Repository,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    elsewhere: bool,
) -> None:
    opened: list[SparkKeys] = []

    def opening() -> AbstractContextManager[SparkKeys]:
        opened.append(SparkKeys(spark))
        return opened[-1]

    monkeypatch.setattr(distributed, "MAX_LOCAL_KEYS", limit)
    monkeypatch.setattr(loads, "LoadTasks", partial(LoadTasks, open_keys=opening))
    # Three records, and the ids of three people that are there.
    path = saved(tmp_path, [person("x"), person("y"), person("z")])
    assert compared(shared, path, "append").error is None
    assert bool(opened) is elsewhere


@pytest.mark.long
def test_load_into_bucket_joins_keys_on_spark(
    s3: Bucket, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = og.init(f"{s3.uri}/graph", schema=SCHEMA, storage_options=s3.options)
    graph.load(BEFORE)
    monkeypatch.setattr(distributed, "MAX_LOCAL_KEYS", -1)
    monkeypatch.setattr(Snapshot, "scan_batches", None)
    lines: list[Record | str] = [person("p0", age=9), person("new"), knows("k9", "new", "p1")]
    s3.server.objects.put(s3.name, "in/a.jsonl", text_of([*lines, knows("k9", "new", "p2")]).encode())
    done = graph.load(f"{s3.uri}/in/", "merge", engine="spark", spark=spark)
    assert (done.superseded, done.nodes, done.edges) == (1, {"Person": 2}, {"Knows": 1})
    s3.server.objects.put(s3.name, "in/a.jsonl", text_of([knows("k8", "new", "old")]).encode())
    with pytest.raises(og.errors.ConstraintViolation, match="dst 'old' not found in Person"):
        graph.load(f"{s3.uri}/in/", "merge", engine="spark", spark=spark)
