"""What a schema change is refused for, what it stores, and how it stands beside other writers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import Conflict, ConstraintViolation, InvalidInput, StorageError
from omnigraph.graph.transaction import Transaction
from omnigraph.load import spool
from omnigraph.load.sink import open_sink
from omnigraph.load.sink_options import SinkOptions
from omnigraph.store.tables.tables import Tables
from tests.support.places import fresh_memory, together
from tests.support.schema_changes import CASES, START, count, edited, grown, lines, make, person, stored
from tests.support.workers import run_together


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with make(tmp_path / "graph") as made:
        yield made


def test_backfill_of_many_fragments_gives_each_row_its_value(tmp_path: Path) -> None:
    g = og.init(str(tmp_path / "g"), "node P { name: String @key  n: I64 }", durability="os")
    for start in range(0, 9_000, 3_000):
        g.load({"P": [{"name": f"p{n}", "n": n} for n in range(start, start + 3_000)]})
    g.mutate("query q() { delete P where n < 1500 }")
    g.mutate("query q() { delete P where n >= 8990 }")
    g.schema.apply(
        "node P { name: String @key  n: I64  m: I64 @unique }", backfill={"P.m": og.expr("$this.n")}
    )
    ask = "query q() { match { $p: P } return { $p.n as n, $p.m as m } }"
    found = g.query(ask).rows()
    assert sorted(row["n"] for row in found) == list(range(1_500, 8_990))
    assert all(row["n"] == row["m"] for row in found)


def refused(graph: og.Graph, kind: type[og.OmnigraphError], text: str, **options: Any) -> og.OmnigraphError:
    """The error of a change that leaves the graph as it was."""
    before, head, files = lines(graph), graph.commits(), stored(graph)
    with pytest.raises(kind) as caught:
        graph.schema.apply(text, **options)
    assert (lines(graph), graph.commits()) == (before, head)
    assert stored(graph) == files
    return caught.value


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("age: I32?", "age: I64?"), "[OG-MF-106] changing property type for 'Person.age'"),
        (("  age: I32?\n", "  age: I32?\n  x: I32\n"), "[OG-MF-103] adding required property 'Person.x'"),
        (("age: I32?", "age: I32? @unique"), "adding a property-level @unique constraint to 'Person.age'"),
        (("  place:", "  @range(age, 0..5)\n  place:"), "adding constraint '@range(age, 0..5)' to 'Person'"),
        (("Person -> Firm", "Firm -> Firm"), "changing edge endpoints on 'WorksAt'"),
    ],
)
def test_apply_with_unsupported_step_reports_its_code_and_changes_nothing(
    graph: og.Graph, edit: tuple[str, str], message: str
) -> None:
    error = refused(graph, InvalidInput, edited(edit) + "node City { name: String @key }\n")
    assert error.message.startswith(message)
    assert error.details["supported"] is False
    assert {step["kind"] for step in error.details["steps"]} >= {"add_type", "unsupported_change"}


def test_apply_of_required_property_without_backfill_has_a_hint(graph: og.Graph) -> None:
    error = refused(graph, InvalidInput, edited(("  age: I32?\n", "  age: I32?\n  x: I32\n")))
    assert error.hint == 'set a value for existing rows: backfill={"Person.x": …}, or --backfill Person.x=…'
    other = refused(graph, InvalidInput, edited(("age: I32?", "age: I64?")))
    assert other.hint is None


def test_backfill_of_interface_property_covers_types_with_rows() -> None:
    person = "node Person implements Named { name: String @key }"
    graph = og.init(fresh_memory(), schema="interface Named { } " + person)
    with pytest.raises(InvalidInput) as caught:
        graph.schema.apply("interface Named { x: I32 } " + person)
    assert caught.value.message.startswith("[OG-MF-103] adding required property 'Named.x'")
    assert caught.value.hint == (
        'set a value for existing rows of each implementing type: backfill={"Type.x": …}, or --backfill Type.x=…'
    )


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ("x", InvalidInput, "property 'x': expected I32, got \"x\""),
        (2**40, InvalidInput, "property 'x': value 1099511627776 exceeds I32"),
        (None, ConstraintViolation, "non-nullable property 'x' has null or invalid values"),
        (og.expr("$this.nope"), InvalidInput, "no property `nope`"),
        (og.expr("$this.name"), InvalidInput, "expected I32, `$this.name` is String"),
        (og.expr("count($this)"), InvalidInput, "has no value row by row"),
        (og.expr("1 as a, 2"), InvalidInput, "has no value row by row"),
        (og.expr("99999999999"), InvalidInput, "property 'x' expects I32"),
        ({"expression": "1"}, InvalidInput, "a value or an expression"),
    ],
)
def test_backfill_of_wrong_type_changes_nothing(
    graph: og.Graph, given: Any, kind: type[og.OmnigraphError], message: str
) -> None:
    text = grown("x: I32")
    assert message in refused(graph, kind, text, backfill={"Person.x": given}).message


def test_backfill_that_violates_a_constraint_changes_nothing(graph: og.Graph) -> None:
    graph.load({"Person": [person("dan")]})
    wider = grown("x: I32")
    error = refused(graph, ConstraintViolation, wider, backfill={"Person.x": og.expr("$this.age")})
    assert isinstance(error, ConstraintViolation)
    assert [item["id"] for item in error.violations] == ["dan"]

    unique = grown("x: I32 @unique")
    error = refused(graph, ConstraintViolation, unique, backfill={"Person.x": 1})
    assert error.message == "@unique violation on Person.x: value '1' held by 'ann' and 'bob'"
    assert error.details["violations"] == 3

    enum = grown("x: enum(p, q)")
    error = refused(graph, ConstraintViolation, enum, backfill={"Person.x": og.expr("$this.name")})
    assert error.message == "invalid enum value 'ann' for Person.x (expected: p, q)"
    # All four rows break the rule, and all are counted.
    assert error.details["violations"] == 4


def test_apply_of_unique_tuple_with_new_property_checks_all_rows(graph: og.Graph) -> None:
    wider = edited(("  place:", "  x: I32\n  @unique(mood, x)\n  place:"))
    error = refused(graph, ConstraintViolation, wider, backfill={"Person.x": 1})
    assert error.message == "@unique violation on Person.(mood, x): value '(good, 1)' held by 'ann' and 'bob'"
    assert graph.schema.apply(wider, backfill={"Person.x": og.expr("$this.age")}).applied


def test_backfill_expression_reads_the_row_before_renames_and_drops(graph: og.Graph) -> None:
    text = (
        CASES["rename_type"]
        .text.replace("  age: I32?\n", "  past: I64?\n")
        .replace("code: String", 'tag: String @rename_from("code")\n  label: String')
    )
    fill = {"Human.past": og.expr("$this.age"), "Human.label": og.expr("$this.code")}
    graph.schema.apply(text, backfill=fill)
    ann = graph.get("Human", "ann")
    assert ann is not None
    assert (ann["past"], ann["label"], ann["tag"]) == (20, "ANN", "ANN")


def test_backfill_of_edge_accepts_values_only(graph: og.Graph) -> None:
    text = edited(("{ since: Date? }", "{ since: Date?  weight: F64 }"))
    error = refused(graph, InvalidInput, text, backfill={"Knows.weight": og.expr("1.5")})
    assert "edge property" in error.message


def test_backfill_of_empty_type_stores_nothing() -> None:
    g = og.init(fresh_memory(), START)
    text = grown("x: I32 @unique", "kind: enum(p, q)")
    g.schema.apply(text, backfill={"Person.x": 1, "Person.kind": "p"})
    g.load({"Person": [person("ann", x=3, kind="q")]})
    with pytest.raises(ConstraintViolation, match="@unique violation on Person"):
        g.load({"Person": [person("bob", x=3, kind="q")]})
    with pytest.raises(InvalidInput, match="non-nullable property 'x'"):
        g.load({"Person": [person("bob", kind="q")]})


def test_backfill_writes_only_the_new_column(graph: og.Graph) -> None:
    before = stored(graph)
    graph.schema.apply(grown("x: I32"), backfill={"Person.x": 1})
    new = {Path(file) for file in stored(graph) - before}
    assert {file.parent.name for file in new} == {"data", "_versions", "_transactions"}
    assert before <= stored(graph)
    assert sum(file.parent.name == "data" for file in new) == 1


@pytest.mark.parametrize(
    "name",
    [
        "rename_type",
        "rename_property",
        "add_constraint",
        "extend_enum",
        "update_metadata",
        "update_property_metadata",
        "drop_property",
        "drop_required",
        "drop_type",
    ],
)
def test_apply_of_metadata_step_keeps_every_table_version(graph: og.Graph, name: str) -> None:
    files, pins = stored(graph), graph.snapshot().commit.tables
    CASES[name].apply(graph)
    assert graph.snapshot().commit.tables.items() <= pins.items()
    assert stored(graph) == files


def test_apply_with_concurrent_write_of_its_rows_raises_conflict(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = grown("x: I32")
    interrupted_by(monkeypatch, lambda: graph.load({"Person": [person("dan")]}))
    with pytest.raises(Conflict, match="node:Person changed"):
        graph.schema.apply(text, backfill={"Person.x": 1})
    assert graph.schema.source() == START
    assert count(graph, "Person") == 4
    monkeypatch.undo()
    assert graph.schema.apply(text, backfill={"Person.x": 1}).applied


def interrupted_by(
    monkeypatch: pytest.MonkeyPatch, other: Callable[[], object], what: str = "schema_apply"
) -> None:
    """Have something happen once, after a write was prepared and before it is published."""
    freeze = Transaction.plan
    done: list[bool] = []

    def plan(self: Transaction, operation: str, *args: Any, **more: Any) -> Any:
        found = freeze(self, operation, *args, **more)
        if operation == what and not done:
            done.append(True)
            other()
        return found

    monkeypatch.setattr(Transaction, "plan", plan)


def test_apply_beside_optimize_succeeds(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.load({"Person": [person("dan")]})
    interrupted_by(monkeypatch, graph.optimize)
    text = grown("x: I32")
    assert graph.schema.apply(text, backfill={"Person.x": 1}).applied
    assert [commit.operation for commit in graph.commits()][:2] == ["schema_apply", "optimize"]
    assert count(graph, "Person") == 4


def test_apply_with_concurrent_write_of_other_types_succeeds(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted_by(monkeypatch, lambda: graph.load({"Firm": [{"slug": "y"}]}))
    text = grown("x: I32")
    assert graph.schema.apply(text, backfill={"Person.x": 1}).applied
    assert count(graph, "Firm") == 2


def test_concurrent_applies_on_one_branch_have_one_winner(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted_by(monkeypatch, lambda: CASES["extend_enum"].apply(graph))
    with pytest.raises(Conflict, match="schema changed"):
        CASES["add_constraint"].apply(graph)
    assert graph.schema.source() == CASES["extend_enum"].text


def test_write_that_began_before_apply_is_prepared_again(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted_by(monkeypatch, lambda: CASES["drop_required"].apply(graph), "mutate")
    graph.mutate('query q() { insert Firm { slug: "y" } }')
    assert [commit.operation for commit in graph.commits()][:2] == ["mutate", "schema_apply"]
    assert count(graph, "Firm") == 2


@pytest.mark.parametrize("method", ["stage_computed_columns", "stage_columns", "stage_rows", "stage_index"])
def test_apply_that_fails_leaves_nothing_visible(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    before, head = lines(graph), graph.commits()
    text = grown("x: I32", "y: I32?").replace("  code: String\n", "")

    def fail(*_: Any, **__: Any) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Tables, method, fail)
        with pytest.raises(StorageError):
            graph.schema.apply(text, backfill={"Person.x": 1}, allow_data_loss=True)
    assert (lines(graph), graph.commits(), graph.schema.source()) == (before, head, START)
    assert graph.repair().pending == 0
    assert graph.schema.apply(text, backfill={"Person.x": 1}, allow_data_loss=True).applied


# Each mode with one change. `make faults` runs the other combinations.
BULK_LOADS = {("drop_required", "append"), ("backfill_values", "merge"), ("hard_drop_property", "overwrite")}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(name, mode, marks=() if (name, mode) in BULK_LOADS else pytest.mark.long)
        for name in ("drop_required", "backfill_values", "add_property", "hard_drop_property")
        for mode in ("append", "merge", "overwrite")
    ],
)
def test_bulk_load_after_apply_writes_the_new_schema(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, name: str, mode: Any
) -> None:
    case = CASES[name]
    case.apply(graph)
    monkeypatch.setattr(spool.LoadLimits, "__init__", _tiny(spool.LoadLimits.__init__))
    rows = [case.another(f"n{number}") for number in range(10)]
    graph.load({"Person": rows, **({"Knows": [], "WorksAt": []} if mode == "overwrite" else {})}, mode)
    assert count(graph, "Person") == (10 if mode == "overwrite" else 13)


def _tiny(init: Callable[..., None]) -> Callable[..., None]:
    return lambda self, **given: init(self, **{"rows": 2, **given})


@pytest.mark.parametrize("name", ["drop_required", "backfill_values"])
def test_staged_fragments_after_apply_fit_the_new_schema(graph: og.Graph, name: str) -> None:
    case = CASES[name]
    case.apply(graph)
    sink = open_sink(SinkOptions(graph.uri, "Person", "main", "append", {}), list(case.row))
    rows = pa.RecordBatch.from_pylist([case.another(f"n{number}") for number in range(4)])
    assert sink.commit([sink.stage(number, [rows.slice(2 * number, 2)]) for number in range(2)]) is not None
    assert count(graph, "Person") == 7


def test_concurrent_applies_on_branches_reserve_distinct_ids(tmp_path: Path) -> None:
    g = og.init(str(tmp_path / "g"), "node P { name: String @key }\n", durability="os")
    shared = set(_numbers(g, "main"))
    branches = [f"b{number}" for number in range(5)]
    for branch in branches:
        g.branches.create(branch)

    def change(branch: str) -> Callable[[], bool]:
        text = "node P { name: String @key  x: I32? }\nnode T { name: String @key }\n"
        return lambda: all(
            g.schema.apply(
                text.replace("T", f"T{number}").replace("x:", f"x{number}:"), branch=branch
            ).applied
            for number in range(3)
        )

    assert together([change(branch) for branch in branches[:3]]) == [True] * 3
    given = [{"uri": g.uri, "branch": branch, "times": 3} for branch in branches[3:]]
    assert run_together("tests.support.schema_worker", given) == ["done", "done"]
    own = [number for branch in branches for number in _numbers(g, branch) if number not in shared]
    assert len(own) == len(set(own))
    assert len(own) >= 5 * 4


def _numbers(graph: og.Graph, branch: str) -> list[int]:
    """Every number that a branch's schema uses."""
    known = graph.snapshot(branch).catalog.identities
    tables = [item.table for item in known.types if item.table is not None]
    return [*(item.id for item in known.types), *(item.id for item in known.properties), *tables]
