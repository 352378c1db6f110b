"""Loads that do not fit in memory do what those that do would have done, and what the specification says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlglot import parse_one

from omnigraph.errors import ConstraintViolation
from omnigraph.graph.pipeline_runs import PipelineRun
from omnigraph.graph.repository import Repository
from omnigraph.load.load import LoadResult
from omnigraph.load.spool import LoadLimits
from omnigraph.rules import set_queries as queries
from omnigraph.rules.load_mode import WriteMode
from omnigraph.rules.violations import MAX_REPORTED
from tests.catalog.test_identity import catalog_of
from tests.load.loads import BULK, SMALL, image, load
from tests.rules import naive
from tests.rules.naive import CARDS, CATALOG, ENDS
from tests.rules.states import Image, Row, edge, image_of
from tests.support.places import fresh_memory

Records = dict[str, list[Row]]

ids = st.integers(0, 3).map(lambda number: f"p{number}")
names = st.integers(0, 2).map(lambda number: f"c{number}")
weights = st.sampled_from([None, None, 0.0, -0.0, 0.5])
people = st.builds(
    lambda id_, age, mail, w: {"id": id_, "age": age, "mail": mail, "w": w},
    ids,
    st.sampled_from([None, None, 1, 2, 3, 12]),
    st.sampled_from([None, None, "a", "b", "c", "d", "A"]),
    weights,
)
firms = st.builds(lambda name: {"id": name, "name": name}, names)
knows = st.builds(lambda number, src, dst: edge(f"k{number}", src, dst), st.integers(0, 4), ids, ids)
jobs = st.builds(
    lambda number, src, dst, n: edge(f"j{number}", src, dst, n=n),
    st.integers(0, 4),
    ids,
    names,
    st.sampled_from([None, None, 1, 2, 3]),
)
KEYED = {"node:C"}
MODES: list[WriteMode] = ["append", "merge", "overwrite"]
EVERYBODY: Records = {
    "node:P": [{"id": f"p{number}"} for number in range(4)],
    "node:C": [{"id": f"c{number}", "name": f"c{number}"} for number in range(3)],
    "edge:K": [edge("k0", "p0", "p1"), edge("k1", "p0", "p2"), edge("k2", "p1", "p1")],
    "edge:J": [edge("j0", "p0", "c0", n=1), edge("j1", "p1", "c1")],
}


@st.composite
def loads(draw: st.DrawFn) -> tuple[WriteMode, Records]:
    """A mode, and records of some of the types in any order; a type may be named without a record."""
    kinds = {"node:P": people, "node:C": firms, "edge:K": knows, "edge:J": jobs}
    chosen = draw(st.lists(st.sampled_from(sorted(kinds)), unique=True, max_size=3))
    return draw(st.sampled_from(MODES)), {key: draw(st.lists(kinds[key], max_size=4)) for key in chosen}


def applied(before: Image, mode: WriteMode, records: Records) -> Image:
    """What a load makes of an image, rule by rule of section 12.3, whether or not it may."""
    after = {key: dict(found) for key, found in before.items()}
    for key, found in records.items():
        if mode == "overwrite":
            after[key] = {}
        for row in found:
            after.setdefault(key, {})[row["id"]] = row
    return after


def is_allowed(before: Image, mode: WriteMode, records: Records) -> bool:
    """Section 10 over the whole image, with the rules of each mode."""
    after = applied(before, mode, records)
    for key, found in records.items():
        # Every record keeps the rules of a row, also one that a later one replaces.
        if any(naive.broken_rows({key: {row["id"]: row}}) for row in found):
            return False
        counted = Counter(row["id"] for row in found)
        if (mode != "merge" or key in KEYED) and counted and max(counted.values()) > 1:
            return False
        # Unique values are compared between all records, also those that a later one replaces.
        if naive.clashes({key: {str(place): row for place, row in enumerate(found)}}):
            return False
        if mode == "append" and any(id_ in before.get(key, {}) for id_ in counted):
            return False
    return not (
        naive.clashes(after)
        or naive.unresolved(after)
        or naive.miscounted(after, changed(before, after, mode, records))
    )


def is_stored(before: Image, mode: WriteMode, records: Records) -> bool:
    """Whether a load is a merge of rows that are all there already, so that it makes no commit."""
    merges_rows = mode == "merge" and any(records.values())
    return merges_rows and exact(applied(before, mode, records)) == exact(before)


def exact(image: Image) -> dict[str, dict[str, dict[str, str]]]:
    """The values of an image without nulls, as texts that tell the two zeros apart."""
    return {
        key: {
            id_: {name: repr(value) for name, value in row.items() if value is not None}
            for id_, row in found.items()
        }
        for key, found in image.items()
    }


def changed(before: Image, after: Image, mode: WriteMode, records: Records) -> dict[str, set[str]]:
    """The sources that gained or lost edges and are still nodes."""
    found = {}
    for key in CARDS:
        if key in records:
            put = {row["id"] for row in records[key]}
            old = before.get(key, {})
            left = {row["src"] for id_, row in old.items() if mode == "overwrite" or id_ in put}
            # Of the records with one id the last counts: those before it change nothing.
            last = {row["id"]: row for row in records[key]}
            sources = left | {row["src"] for row in last.values()}
            found[key] = sources & set(after.get(ENDS[key][0], {}))
    return found


def attempt(graph: Repository, records: Records, mode: WriteMode, branch: str, bulk: bool) -> Any:
    """What a load reports, done or refused."""
    try:
        outcome = load(graph, records, mode, limits=BULK if bulk else SMALL, branch=branch, source="in")
    except ConstraintViolation as error:
        return error.message, error.violations, error.details
    return replace(outcome, seconds={})


@pytest.fixture(scope="module")
def graph() -> Repository:
    found = Repository.init(fresh_memory(), CATALOG)
    load(found, EVERYBODY, "append")
    return found


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(loads(), min_size=1, max_size=2))
def test_both_sizes_and_the_specification_agree(
    graph: Repository, steps: list[tuple[WriteMode, Records]]
) -> None:
    number = len(graph.branches())
    small, bulk = f"small-{number}", f"bulk-{number}"
    graph.create_branch(small)
    graph.create_branch(bulk)
    state = image_of(EVERYBODY)
    for mode, records in steps:
        reported = attempt(graph, records, mode, small, bulk=False)
        assert attempt(graph, records, mode, bulk, bulk=True) == reported
        assert isinstance(reported, LoadResult) == is_allowed(state, mode, records)
        if isinstance(reported, LoadResult):
            assert reported.unchanged == is_stored(state, mode, records)
            state = applied(state, mode, records)
        found = image(graph, small)
        assert image(graph, bulk) == found
        assert {key: [row["id"] for row in rows] for key, rows in found.items()} == {
            key: sorted(state.get(key, {})) for key in found
        }


TYPED = catalog_of("""
node T {
  text: String? @unique
  tEXT: String? @unique
  flag: Bool? @unique
  small: I32? @unique
  large: U64? @unique
  half: F32? @unique
  whole: F64? @unique
  day: Date? @unique
  at: DateTime? @unique
  kind: enum(a, b)? @unique
  @unique(flag, day, whole)
}
""")
VALUES: Row = {
    "text": "it's \u00e9",
    "tEXT": "x",
    "flag": True,
    "small": -5,
    "large": 2**64 - 1,
    "half": 0.1,
    "whole": float("nan"),
    "day": 19_000,
    "at": 1_700_000_000_123,
    "kind": "b",
}


@pytest.mark.parametrize("committed", [True, False])
def test_values_of_every_type_are_compared_and_told_alike(committed: bool) -> None:
    graph = Repository.init(fresh_memory(), TYPED)
    for branch in ("small", "bulk"):
        graph.create_branch(branch)
    records: Records = {"node:T": [{"id": "one", **VALUES}, {"id": "two", **VALUES}]}
    for branch in ("small", "bulk") if committed else ():
        first = {"node:T": [{"id": "zero", **VALUES}]}
        assert isinstance(attempt(graph, first, "append", branch, branch == "bulk"), LoadResult)
    told = attempt(graph, records, "merge", "small", bulk=False)
    assert attempt(graph, records, "merge", "bulk", bulk=True) == told
    holders = {item["held_by"] for item in told[1]}
    assert (len(told[1]), holders) == ((22, {"zero"}) if committed else (11, {"one"}))


MANY = range(MAX_REPORTED + 20)
TOO_MANY: list[Records] = [
    {"node:P": [{"id": f"q{number * 7 % len(MANY):03}", "mail": "z"} for number in MANY]},
    {"edge:J": [edge(f"e{number * 7 % len(MANY):03}", "nobody", "nowhere") for number in MANY]},
    {"node:P": [{"id": "p0"}], "edge:K": [edge(f"e{number:03}", "p3", f"p{number}") for number in range(3)]},
    {"node:C": [{"id": f"d{number:03}", "name": f"d{number:03}"} for number in MANY] * 2},
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("records", TOO_MANY)
def test_the_first_violations_are_told_and_all_counted(
    graph: Repository, mode: WriteMode, records: Records
) -> None:
    if mode == "merge" and "node:C" in records:
        records = {"node:C": [{**row, "name": None} for row in records["node:C"]]}
    message, violations, details = attempt(graph, records, mode, "main", bulk=False)
    assert attempt(graph, records, mode, "main", bulk=True) == (message, violations, details)
    assert len(violations) == min(MAX_REPORTED, details["violations"])


def test_the_records_of_a_bulk_load_are_indexed(graph: Repository) -> None:
    graph.create_branch("indexed")
    load(graph, {"edge:K": [edge("k7", "p2", "p3")]}, "append", limits=BULK, branch="indexed")
    snapshot = graph.snapshot("indexed")
    pin = snapshot.pin("edge:K")
    names = {item.name for item in graph.tables.open(pin.path, pin.version).describe_indices()}
    assert names == {"id_btree", "src_btree", "dst_btree"}
    assert [row["id"] for row in snapshot.scan("edge:K", ["id"], "src = 'p2'").to_pylist()] == ["k7"]


def test_bulk_load_with_index_later_leaves_the_records_to_optimize(graph: Repository) -> None:
    graph.create_branch("later")
    for mode, n in (("append", 1), ("merge", 2)):
        rows = [edge("k7", "p2", "p3", n=n)]
        load(graph, {"edge:K": rows}, mode, limits=BULK, branch="later", index_later=True)  # type: ignore[arg-type]
    snapshot = graph.snapshot("later")
    pin = snapshot.pin("edge:K")
    assert graph.tables.unindexed_fragments(pin, "id", "BTREE")
    assert not graph.tables.open(pin.path, pin.version).describe_indices()
    # Rows without an index are scanned.
    for column, value in (("id", "k7"), ("src", "p2"), ("dst", "p3")):
        assert [
            row["id"] for row in snapshot.scan("edge:K", ["id"], f"{column} = '{value}'").to_pylist()
        ] == ["k7"]


@pytest.mark.parametrize("limits", [SMALL, BULK])
def test_run_of_rows_that_are_stored_already_writes_no_table(graph: Repository, limits: LoadLimits) -> None:
    load(graph, EVERYBODY, "merge")
    before = graph.snapshot("main").commit
    result = load(graph, EVERYBODY, "merge", limits=limits, run=PipelineRun(f"p{limits.rows}", None, "{}"))
    after = graph.snapshot("main").commit
    assert result.unchanged
    assert after.tables == before.tables
    assert after.runs[f"p{limits.rows}"] == after.id


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_the_queries_can_be_said_in_every_dialect(dialect: str) -> None:
    for query in (
        queries.superseded_positions(1),
        queries.replaced_addresses(1),
        queries.count_replaced(1),
        queries.origins(1, ["it's", "\\"]),
        queries.existing_ids(1),
        queries.duplicate_values(1, ("property1", "property2"), kept=True),
        queries.duplicate_values(1, ("property1", "property2"), kept=True, wrong="offenders_1"),
        queries.missing_endpoints(2, "src", ("new_1", "committed_1")),
        queries.orphaned_endpoints(2, "dst", 1),
        *(queries.cardinality_violations(2, mode, 1, 1, 2) for mode in MODES),
    ):
        text = query.sql(dialect)
        assert parse_one(text, read=dialect).sql(dialect) == text
