"""Loads: what each mode does, what is refused and how, and what is left behind, mostly at both sizes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ulid import ULID

from omnigraph.engine.parameters import Bindings
from omnigraph.errors import Conflict, ConstraintViolation, InvalidInput
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.load.load import LoadResult, prepare_load
from omnigraph.load.spool import LoadLimits, Spool
from omnigraph.mutate.overlay import Overlay
from omnigraph.rules.load_mode import WriteMode
from omnigraph.rules.violations import MAX_REPORTED
from omnigraph.sources.row_batch import InputBatch
from tests.catalog.test_identity import catalog_of
from tests.load.loads import BULK, SMALL, input_of, load, rows
from tests.rules.states import Row, edge, person, rows_of
from tests.support.places import fresh_memory

CATALOG = catalog_of("""
node Person { name: String @key  age: I32?  mail: String? @unique  tags: [String]?  @range(age, 0..150) }
node Firm { name: String @key }
node Note { text: String  day: Date?  vec: Vector(2)?  file: Blob?  code: String? @unique }
edge Knows: Person -> Person { since: Date? }
edge Leads: Person -> Firm @card(1..2)
""")


def firm(name: str) -> Row:
    return {"id": name, "name": name}


@pytest.fixture(params=[SMALL, BULK], ids=["small", "bulk"])
def limits(request: pytest.FixtureRequest) -> LoadLimits:
    """How much fits in memory."""
    found: LoadLimits = request.param
    return found


@pytest.fixture
def graph() -> Repository:
    found = Repository.init(fresh_memory(), CATALOG)
    people = [person("Ann", age=30, mail="a"), person("Bob", age=25), person("Cy", mail="c")]
    leads = [edge("l1", "Ann", "Acme"), edge("l2", "Bob", "Acme"), edge("l3", "Bob", "Beta")]
    records = {
        "edge:Knows": [edge("k1", "Ann", "Bob")],
        "node:Person": people,
        "node:Firm": [firm("Acme"), firm("Beta")],
        "edge:Leads": leads,
    }
    load(found, records, "append")
    return found


def ids(graph: Repository, key: str) -> list[str]:
    return [row["id"] for row in rows(graph, key)]


def refused(
    graph: Repository, records: dict[str, list[Row]], mode: Any, limits: LoadLimits
) -> list[dict[str, Any]]:
    """The violations of a load that is refused; nothing of it is visible."""
    head = graph.head().commit.id
    with pytest.raises(ConstraintViolation) as caught:
        load(graph, records, mode, limits=limits, source="in.jsonl")
    assert graph.head().commit.id == head
    assert caught.value.message == caught.value.violations[0]["message"]
    assert caught.value.details["violations"] >= len(caught.value.violations)
    return list(caught.value.violations)


# --- append -------------------------------------------------------------------------------------------------


def test_append_of_nodes_and_edges_in_any_order_makes_one_commit(
    graph: Repository, limits: LoadLimits
) -> None:
    before = graph.head().commit
    records = {"edge:Knows": [edge("k2", "Di", "Ann")], "node:Person": [person("Di", age=4), person("Ed")]}
    outcome = load(graph, records, "append", limits=limits)
    assert (outcome.nodes, outcome.edges) == ({"Person": 2}, {"Knows": 1})
    assert outcome.affected["node:Person"] == {"inserted": 2, "updated": 0, "deleted": 0}
    assert set(outcome.seconds) == {"read", "check", "stage"}
    assert graph.head().commit.parent == before.id
    assert ids(graph, "node:Person") == ["Ann", "Bob", "Cy", "Di", "Ed"]
    assert ids(graph, "edge:Knows") == ["k1", "k2"]


def test_append_of_existing_id_is_refused(graph: Repository, limits: LoadLimits) -> None:
    found = refused(
        graph,
        {"node:Person": [person("Di"), person("Ann")], "edge:Knows": [edge("k1", "Cy", "Cy")]},
        "append",
        limits,
    )
    assert [item["message"] for item in found] == [
        "edge type 'Knows' already has id 'k1'",
        "node type 'Person' already has id 'Ann'",
    ]
    assert [(item["rule"], item["line"], item["source"]) for item in found] == [
        ("key", 3, "in.jsonl"),
        ("key", 2, "in.jsonl"),
    ]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_append_of_repeated_record_is_refused(graph: Repository, limits: LoadLimits, mode: Any) -> None:
    notes = [{"id": "n", "text": "x"}, {"id": "n", "text": "y"}]
    people = [person("Ann"), person("Bob"), person("Cy"), person("Di"), person("Di")]
    chosen = people if mode == "overwrite" else people[3:]
    found = refused(graph, {"node:Person": chosen, "node:Note": notes}, mode, limits)
    assert [item["message"] for item in found] == [
        "@unique violation on Note.id: value 'n' held by 'n' and 'n'",
        "@unique violation on Person.name: value 'Di' held by 'Di' and 'Di'",
    ]


def test_load_of_duplicate_unique_value_is_refused(graph: Repository, limits: LoadLimits) -> None:
    people = [person("Di", mail="d"), person("Ed", mail="d"), person("Flo", mail="a")]
    messages = [item["message"] for item in refused(graph, {"node:Person": people}, "append", limits)]
    assert messages == [
        "@unique violation on Person.mail: value 'd' held by 'Di' and 'Ed'",
        "@unique violation on Person.mail: value 'a' held by 'Ann' and 'Flo'",
    ]


def test_load_of_edge_without_endpoint_names_its_line(graph: Repository, limits: LoadLimits) -> None:
    records = {"edge:Knows": [edge("k2", "Ann", "Bob"), edge("k3", "Ann", "Zed")]}
    (found,) = refused(graph, records, "append", limits)
    assert (found["message"], found["id"], found["line"]) == ("dst 'Zed' not found in Person", "k3", 2)


def test_load_without_ids_generates_them_in_input_order(graph: Repository, limits: LoadLimits) -> None:
    notes: list[Row] = [{"text": f"{number}"} for number in range(5)]
    notes[2]["id"] = "mine"
    load(graph, {"node:Note": notes}, "append", limits=limits)
    found = {row["text"]: row["id"] for row in rows(graph, "node:Note")}
    assert found.pop("2") == "mine"
    assert list(found.values()) == sorted(set(found.values()))
    assert all(str(ULID.from_str(id_)) == id_ for id_ in found.values())


def test_load_of_empty_input_makes_a_commit(graph: Repository) -> None:
    before = graph.head().commit
    outcome = load(graph, {}, "merge")
    assert graph.head().commit.parent == before.id
    assert (outcome.nodes, outcome.edges, outcome.affected) == ({}, {}, {})


# --- merge --------------------------------------------------------------------------------------------------


def test_merge_replaces_existing_rows_and_inserts_others(graph: Repository, limits: LoadLimits) -> None:
    outcome = load(graph, {"node:Person": [person("Ann", mail="z"), person("Di")]}, "merge", limits=limits)
    assert outcome.affected == {"node:Person": {"inserted": 1, "updated": 1, "deleted": 0}}
    ann = rows(graph, "node:Person")[0]
    assert (ann["age"], ann["mail"]) == (None, "z")
    assert ids(graph, "node:Person") == ["Ann", "Bob", "Cy", "Di"]


def note(id_: str, text: str, code: str | None = None) -> Row:
    return {"id": id_, "text": text, "code": code}


def test_merge_explicit_id_repeated_in_the_input_keeps_the_last_record(
    graph: Repository, limits: LoadLimits
) -> None:
    notes = [note("n1", "a"), note("n2", "b"), note("n1", "c"), note("n1", "d"), note("n3", "e", "q")]
    edges = [edge("k1", "Cy", "Ann"), edge("k2", "Ann", "Cy"), edge("k1", "Cy", "Bob")]
    outcome = load(graph, {"node:Note": notes, "edge:Knows": edges}, "merge", limits=limits)
    assert (outcome.superseded, outcome.nodes, outcome.edges) == (3, {"Note": 3}, {"Knows": 2})
    assert {row["id"]: row["text"] for row in rows(graph, "node:Note")} == {"n1": "d", "n2": "b", "n3": "e"}
    assert {row["id"]: row["dst"] for row in rows(graph, "edge:Knows")} == {"k1": "Bob", "k2": "Cy"}


def test_merge_key_repeated_in_the_input_is_a_violation(graph: Repository, limits: LoadLimits) -> None:
    people = [person("Di", age=1), person("Ann", age=2), person("Di", age=3), person("Di", age=4)]
    found = refused(graph, {"node:Person": [*people, person("Ann")]}, "merge", limits)
    message = "@unique violation on Person.name: value '{0}' held by '{0}' and '{0}'"
    assert [(item["line"], item["message"]) for item in found] == [
        (5, message.format("Ann")),
        (3, message.format("Di")),
        (4, message.format("Di")),
    ]


def test_merge_unique_value_repeated_under_one_id_is_a_violation(
    graph: Repository, limits: LoadLimits
) -> None:
    notes = [note("n1", "a", "q"), note("n1", "b", "q"), note("n1", "c", "r"), note("n2", "d", "q")]
    found = refused(graph, {"node:Note": notes}, "merge", limits)
    assert [(item["line"], item["id"], item["held_by"]) for item in found] == [
        (2, "n1", "n1"),
        (4, "n2", "n1"),
    ]


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_load_unique_value_of_an_earlier_record_names_the_line_of_the_later(
    graph: Repository, limits: LoadLimits, mode: WriteMode
) -> None:
    """The ids descend, so that the order of the ids is not the order of the lines."""
    people = [person("Zoe", mail="x"), person("Yan"), person("Xia", mail="x"), person("Abe", mail="x")]
    found = refused(graph, {"node:Person": people}, mode, limits)
    assert [(item["line"], item["source"], item["id"], item["held_by"]) for item in found] == [
        (4, "in.jsonl", "Abe", "Zoe"),
        (3, "in.jsonl", "Xia", "Zoe"),
    ]


def test_append_id_repeated_in_the_input_names_each_later_line(graph: Repository, limits: LoadLimits) -> None:
    edges = [
        edge("k1", "Ann", "Bob"),
        edge("k5", "Ann", "Cy"),
        edge("k1", "Bob", "Cy"),
        edge("k5", "Cy", "Cy"),
    ]
    found = refused(graph, {"edge:Knows": edges}, "append", limits)
    assert sorted((item["rule"], item["line"], item["id"]) for item in found) == [
        ("key", 1, "k1"),
        ("key", 3, "k1"),
        ("unique", 3, "k1"),
        ("unique", 4, "k5"),
    ]


def test_merge_accepts_unique_value_that_it_frees(graph: Repository, limits: LoadLimits) -> None:
    load(graph, {"node:Person": [person("Ann", mail="c"), person("Cy", mail="a")]}, "merge", limits=limits)
    assert {row["id"]: row["mail"] for row in rows(graph, "node:Person")} == {
        "Ann": "c",
        "Bob": None,
        "Cy": "a",
    }


def test_merge_of_moved_edge_checks_the_cardinality_of_its_old_source(
    graph: Repository, limits: LoadLimits
) -> None:
    (found,) = refused(graph, {"edge:Leads": [edge("l1", "Cy", "Acme")]}, "merge", limits)
    assert found["message"] == "@card violation on edge Leads: source 'Ann' has 0 edges (min 1)"
    assert "line" not in found
    load(graph, {"edge:Leads": [edge("l3", "Cy", "Beta")]}, "merge", limits=limits)
    (found,) = refused(
        graph, {"edge:Leads": [edge("l4", "Cy", "Beta"), edge("l5", "Cy", "Acme")]}, "merge", limits
    )
    assert found["message"] == "@card violation on edge Leads: source 'Cy' has 3 edges (max 2)"


def test_merge_of_more_ids_than_one_lookup_finds_them_all() -> None:
    graph = Repository.init(fresh_memory(), CATALOG)
    load(graph, {"node:Firm": [firm(f"f{number}") for number in range(3_000)]}, "append")
    load(graph, {"node:Firm": [firm(f"f{number}") for number in range(3_000, 6_000)]}, "append")
    outcome = load(graph, {"node:Firm": [firm(f"f{number}") for number in range(1_000, 7_000)]}, "merge")
    assert outcome.affected == {"node:Firm": {"inserted": 1_000, "updated": 5_000, "deleted": 0}}
    assert len(set(ids(graph, "node:Firm"))) == len(ids(graph, "node:Firm")) == 7_000
    assert graph.snapshot().pin("node:Firm").rows == 7_000


# --- overwrite ----------------------------------------------------------------------------------------------


def test_overwrite_replaces_only_the_types_of_the_input(graph: Repository, limits: LoadLimits) -> None:
    outcome = load(
        graph, {"edge:Knows": [edge("k9", "Bob", "Cy"), edge("k1", "Cy", "Cy")]}, "overwrite", limits=limits
    )
    assert outcome.affected == {"edge:Knows": {"inserted": 1, "updated": 1, "deleted": 0}}
    assert ids(graph, "edge:Knows") == ["k1", "k9"]
    assert ids(graph, "node:Person") == ["Ann", "Bob", "Cy"]


def test_overwrite_of_named_type_without_records_empties_it(graph: Repository) -> None:
    outcome = load(graph, {"edge:Knows": []}, "overwrite")
    assert outcome.affected == {"edge:Knows": {"inserted": 0, "updated": 0, "deleted": 1}}
    assert ids(graph, "edge:Knows") == []
    assert len(ids(graph, "edge:Leads")) == 3


def test_overwrite_of_nodes_with_edges_is_refused(graph: Repository, limits: LoadLimits) -> None:
    found = refused(graph, {"node:Person": [person("Ann"), person("Di")]}, "overwrite", limits)
    assert [(item["rule"], item["id"], item["message"]) for item in found] == [
        ("orphan", "k1", "dst 'Bob' not found in Person"),
        ("orphan", "l2", "src 'Bob' not found in Person"),
        ("orphan", "l3", "src 'Bob' not found in Person"),
    ]


def test_overwrite_of_nodes_and_their_edges_succeeds(graph: Repository, limits: LoadLimits) -> None:
    records = {
        "node:Person": [person("Di"), person("Ann")],
        "edge:Knows": [edge("k1", "Di", "Di")],
        "edge:Leads": [edge("l1", "Ann", "Beta")],
    }
    load(graph, records, "overwrite", limits=limits)
    assert ids(graph, "node:Person") == ["Ann", "Di"]
    assert ids(graph, "edge:Leads") == ["l1"]


def test_overwrite_of_edges_checks_the_cardinality_of_every_old_source(
    graph: Repository, limits: LoadLimits
) -> None:
    found = refused(graph, {"edge:Leads": [edge("x", "Cy", "Acme")]}, "overwrite", limits)
    assert [item["message"] for item in found] == [
        "@card violation on edge Leads: source 'Ann' has 0 edges (min 1)",
        "@card violation on edge Leads: source 'Bob' has 0 edges (min 1)",
    ]


def test_overwrite_of_large_table_with_few_rows_is_a_bulk_write(graph: Repository) -> None:
    kept = [edge("l1", "Ann", "Beta"), edge("l2", "Bob", "Acme")]
    load(graph, {"edge:Leads": kept}, "overwrite", limits=LoadLimits(rows=2))
    pin = graph.snapshot().pin("edge:Leads")
    assert ids(graph, "edge:Leads") == ["l1", "l2"]
    # Only what is done in bulk is indexed at once.
    assert graph.tables.open(pin.path, pin.version).describe_indices()


# --- rules of a row, and rejects ----------------------------------------------------------------------------


def test_load_with_violations_lists_lines_and_counts_all(graph: Repository, limits: LoadLimits) -> None:
    people = [person(f"p{number:03}", age=151 if number % 2 else 1) for number in range(2 * MAX_REPORTED + 6)]
    found = refused(graph, {"node:Person": people}, "append", limits)
    assert len(found) == MAX_REPORTED
    first = {
        "message": "@range violation on Person.age: value 151 > max 150",
        "line": 2,
        "source": "in.jsonl",
    }
    assert first.items() <= found[0].items()
    with pytest.raises(ConstraintViolation) as caught:
        load(graph, {"node:Person": people}, "append", limits=limits)
    assert caught.value.details == {"violations": MAX_REPORTED + 3, "limit": MAX_REPORTED}


def test_load_with_rejects_passes_invalid_rows_and_loads_the_others(
    graph: Repository, limits: LoadLimits
) -> None:
    notes = [{"text": f"{number}"} for number in range(MAX_REPORTED + 5)]
    broken = [
        {"id": f"n{number}", "day": 3, "vec": [1.0, float("inf")]} for number in range(MAX_REPORTED + 5)
    ]
    edges = [edge("k7", "Ann", "Cy"), {"id": "k8", "src": "Ann", "since": 0}]
    rejects: list[Any] = []
    outcome = load(
        graph,
        {"node:Note": [*broken, *notes], "edge:Knows": edges},
        "append",
        limits=limits,
        rejects=rejects,
        source="in.jsonl",
    )
    assert (outcome.rejected, outcome.nodes, outcome.edges) == (
        len(rejects),
        {"Note": MAX_REPORTED + 5},
        {"Knows": 1},
    )
    assert [item["line"] for item in rejects] == [*range(1, MAX_REPORTED + 6), 2 * MAX_REPORTED + 12]
    reason = (
        "non-nullable property 'text' has null or invalid values; "
        "vector property 'vec' elements must be finite"
    )
    assert rejects[0] == {
        "source": "in.jsonl",
        "line": 1,
        "type": "Note",
        "id": "n0",
        "rule": "required",
        "reason": reason,
        "error": reason,
        "record": {"type": "Note", "data": {"id": "n0", "day": "1970-01-04", "vec": [1.0, "Infinity"]}},
    }
    assert rejects[-1]["record"] == {
        "edge": "Knows",
        "from": "Ann",
        "to": None,
        "data": {"id": "k8", "since": "1970-01-01"},
    }


def test_rejected_record_has_no_generated_id(graph: Repository) -> None:
    rejects: list[Any] = []
    file = {"data": b"ab", "uri": None}
    records = {"node:Person": [person("Di", age=-1, tags=["x"])], "node:Note": [{"file": file}]}
    load(graph, records, "append", rejects=rejects)
    assert [item["record"] for item in rejects] == [
        {"type": "Person", "data": {"name": "Di", "age": -1, "tags": ["x"]}},
        {"type": "Note", "data": {"file": "base64:YWI="}},
    ]


def test_load_with_rejects_rejects_the_edges_of_a_rejected_node(
    graph: Repository, limits: LoadLimits
) -> None:
    rejects: list[Any] = []
    records = {"node:Person": [person("Di", age=-1)], "edge:Knows": [edge("k2", "Di", "Ann")]}
    result = load(graph, records, "append", limits=limits, rejects=rejects)
    assert (result.rejected, result.nodes, result.edges) == (2, {"Person": 0}, {"Knows": 0})
    assert [(item["line"], item["id"], item["rule"], item["reason"]) for item in rejects] == [
        (1, "Di", "range", "@range violation on Person.age: value -1 < min 0"),
        (2, "k2", "endpoint", "src 'Di' not found in Person: its record was rejected"),
    ]


# --- a branch that moves ------------------------------------------------------------------------------------


def test_load_after_concurrent_change_repeats_merge_and_refuses_overwrite(
    graph: Repository, limits: LoadLimits
) -> None:
    def race(mode: Any, name: str) -> None:
        batches = input_of(CATALOG, {"node:Person": [person(item) for item in ("Ann", "Bob", "Cy", name)]})
        with Spool.from_batches(iter(batches), CATALOG, limits=limits) as spool:
            tries: list[int] = []

            def prepare(transaction: Transaction) -> Prepared[LoadResult]:
                done = prepare_load(transaction, spool, mode)
                if not tries:
                    load(graph, {"node:Person": [person(f"rival of {name}")]}, "append")
                tries.append(done.result.affected["node:Person"]["updated"])
                return done

            graph.write("main", WriteRequest("load", bulk=spool.is_bulk), prepare)
            assert tries == [3, 3]

    race("merge", "Di")
    assert ids(graph, "node:Person") == ["Ann", "Bob", "Cy", "Di", "rival of Di"]
    with pytest.raises(Conflict):
        race("overwrite", "Ed")
    assert "Ed" not in ids(graph, "node:Person")


def test_load_of_spool_of_another_schema_is_refused(graph: Repository) -> None:
    other = catalog_of("node Person { name: String @key  height: I32? }")
    batches = input_of(other, {"node:Person": [person("Di")]})
    with Spool.from_batches(batches, other) as spool, pytest.raises(Conflict, match="the schema changed"):
        graph.write("main", WriteRequest("load"), partial(prepare_load, spool=spool, mode="append"))


# --- what is left behind ------------------------------------------------------------------------------------


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go, and nothing else does."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_bulk_load_removes_its_temporary_files_and_intent(graph: Repository, scratch: Path) -> None:
    seen: list[bool] = []
    batches = input_of(CATALOG, {"node:Person": [person("Di")]})
    with Spool.from_batches(batches, CATALOG, limits=BULK) as spool:
        seen.append(spool.is_bulk and any(scratch.iterdir()))
        work = partial(
            prepare_load, spool=spool, mode="append", progress=lambda *_: seen.append(any(scratch.iterdir()))
        )
        graph.write("main", WriteRequest("load", bulk=True), work)
    assert seen == [True, True, True]
    assert list(scratch.iterdir()) == []
    assert not graph.intents.pending()


def test_bulk_load_that_is_refused_removes_its_temporary_files(graph: Repository, scratch: Path) -> None:
    refused(graph, {"edge:Knows": [edge("k2", "Ann", "Zed")]}, "append", BULK)
    refused(graph, {"node:Person": [person("Di"), person("Ed", age=-1)]}, "append", BULK)
    assert list(scratch.iterdir()) == []
    assert not graph.intents.pending()


def test_load_of_truncated_input_removes_its_temporary_files(scratch: Path) -> None:
    seen = []

    def batches() -> Iterator[InputBatch]:
        yield from input_of(CATALOG, {"node:Person": [person("Di"), person("Ed"), person("Flo")]})
        seen.append(len(list(scratch.iterdir())))
        raise InvalidInput("line 4: no more")

    with pytest.raises(InvalidInput, match="line 4"):
        Spool.from_batches(batches(), CATALOG, limits=BULK)
    assert seen == [1]
    assert list(scratch.iterdir()) == []


def test_spool_moves_to_disk_by_rows_or_bytes() -> None:
    records = {"node:Firm": [firm("a"), firm("b")], "node:Person": [person("c")]}
    for limits, is_bulk in [
        (LoadLimits(rows=3), False),
        (LoadLimits(rows=2), True),
        (LoadLimits(bytes=10), True),
    ]:
        with Spool.from_batches(input_of(CATALOG, records), CATALOG, limits=limits) as spool:
            assert spool.is_bulk is is_bulk
            assert spool.counts == {"node:Firm": 2, "node:Person": 1}
            assert spool.table("node:Firm")["name"].to_pylist() == ["a", "b"]
            assert [batch.schema.names for batch in spool.batches("node:Person", ["name", "id"])] == [
                ["name", "id"]
            ]


# --- the overlay --------------------------------------------------------------------------------------------


def test_overlay_of_rewritten_edge_lists_its_old_source_as_vacated(graph: Repository) -> None:
    overlay = Overlay(graph.begin(), Bindings())
    overlay.put("edge:Leads", rows_of(CATALOG.tables["edge:Leads"], [edge("l1", "Cy", "Acme")]))
    assert overlay.deltas()["edge:Leads"].vacated == pa.array(["Ann"])
