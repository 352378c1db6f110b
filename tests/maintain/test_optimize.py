"""Optimize: fewer fragments, complete indexes, unchanged query results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput, NotFound, PermissionDenied
from omnigraph.maintain import compaction_policy
from omnigraph.maintain.cleanup import cleanup
from tests.maintain.optimizing import (
    CITY,
    KNOWS,
    PERSON,
    by_key,
    covered,
    fragments,
    indexes,
    knows,
    person,
    scattered,
    segments,
    told,
)
from tests.support.api_writes import loading_in_bulk
from tests.support.places import fresh_memory
from tests.support.s3 import Bucket

pytest_plugins = ["tests.support.s3_fixtures"]

SCHEMA_OF_CITIES = "node City { name: String @key }"


@pytest.fixture
def graph() -> og.LocalGraph:
    return scattered(fresh_memory())


def test_many_small_fragments_become_one_and_every_declared_index_covers_all(graph: og.LocalGraph) -> None:
    before = told(graph)
    done = graph.optimize(actor="bob", message="weekly")
    found = by_key(done)
    assert (found[PERSON].fragments_removed, found[PERSON].fragments_added) == (4, 1)
    assert (found[KNOWS].fragments_removed, found[KNOWS].fragments_added) == (4, 1)
    assert found[CITY].fragments_removed == 0
    assert found[PERSON].indexes == ("age", "id", "mail", "name")
    assert found[KNOWS].indexes == ("dst", "id", "since", "src")
    assert all(item.committed and item.skipped is None for item in done.datasets)
    assert len(fragments(graph, PERSON)) == len(fragments(graph, KNOWS)) == 1
    assert indexes(graph) == {
        *(("Person", name) for name in found[PERSON].indexes),
        *(("Knows", name) for name in found[KNOWS].indexes),
        ("City", "id"),
        ("City", "name"),
    }
    assert all(item.covered == item.rows > 0 for item in graph.indexes())
    assert told(graph) == before
    assert done.commit is not None
    assert (done.commit.operation, done.commit.actor, done.commit.message) == ("optimize", "bob", "weekly")
    assert graph.commits()[0] == done.commit


def test_a_second_optimize_finds_nothing_to_do(graph: og.LocalGraph) -> None:
    first = graph.optimize()
    versions = {item.type_key: item.version for item in first.datasets}
    second = graph.optimize()
    assert second.commit is None
    assert not any(item.committed or item.fragments_removed or item.indexes for item in second.datasets)
    assert {item.type_key: item.version for item in second.datasets} == versions
    assert graph.commits()[0] == first.commit


def test_the_report_has_the_fields_of_the_contract(graph: og.LocalGraph) -> None:
    found = by_key(graph.optimize())[PERSON].to_json()
    version = graph.snapshot().pin(PERSON).number
    assert json.loads(json.dumps(found)) == {
        "type_key": "node:Person",
        "fragments_removed": 4,
        "fragments_added": 1,
        "committed": True,
        "skipped": None,
        "published_dataset_version": version,
        "lance_head_version": version,
        "indexes": ["age", "id", "mail", "name"],
        "pending_indexes": [
            {
                "property": "vec",
                "reason": "tables with fewer than 10,000 rows are searched exactly, without an index",
            }
        ],
        "error": None,
    }


def test_a_graph_without_rows_needs_nothing() -> None:
    assert og.init(fresh_memory(), schema="node City { name: String @key }").optimize().commit is None


def test_commits_of_before_read_as_they_did(graph: og.LocalGraph) -> None:
    states = {item.id: told(graph, at=item.id) for item in graph.commits()}
    graph.optimize()
    assert {id_: told(graph, at=id_) for id_ in states} == states


def test_a_handle_that_has_read_much_reads_and_writes_rightly_after_it(graph: og.LocalGraph) -> None:
    told(graph)
    assert graph.get("Person", "p11") is not None
    graph.query("query near() { match { $p: Person } return { $p.name } order { $p.name } limit 3 }")
    graph.optimize()
    assert told(graph) == told(og.open(graph.uri))
    assert graph.get("Person", "p11") == {"id": "p11", "name": "p11", "age": 4, "mail": "m11", "vec": None}
    assert graph.get("Person", "p3") is None
    graph.mutate('query change() { update Person set { age: 99 } where name = "p11" }')
    graph.mutate('query gone() { delete Person where name = "p12" }')
    graph.load({"Person": [person(13, 50), person(70)]}, "merge")
    assert told(graph) == told(og.open(graph.uri))
    ages = {row["p.name"]: row["p.age"] for row in told(graph)[0]}
    assert ages["p11"] == 99
    assert ages["p13"] == 50
    assert "p12" not in ages
    assert len(ages) == 15
    graph.optimize()
    assert told(graph) == told(og.open(graph.uri))


def test_only_the_branch_that_is_named_changes(graph: og.LocalGraph) -> None:
    graph.branches.create("dev")
    before = fragments(graph, PERSON)
    done = graph.optimize(branch="dev")
    assert done.commit is not None
    assert done.commit.branch == done.branch == "dev"
    assert fragments(graph, PERSON) == before
    assert len(fragments(graph, PERSON, "dev")) == 1
    assert told(graph, "dev") == told(graph)


def test_a_worn_fragment_is_rewritten_and_one_with_few_deletions_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compaction_policy, "TARGET_ROWS", 100)
    graph = og.init(fresh_memory(), schema=SCHEMA_OF_CITIES)
    graph.load({"City": [{"name": f"c{number:03}"} for number in range(100)]})
    graph.mutate('query some() { delete City where name < "c009" }')
    assert by_key(graph.optimize())[CITY].fragments_removed == 0
    graph.mutate('query more() { delete City where name < "c010" }')
    assert by_key(graph.optimize())[CITY].fragments_removed == 1
    [left] = fragments(graph, CITY)
    assert (left.rows, left.physical_rows, left.deletions) == (90, 90, None)
    assert covered(graph)


def test_segments_of_many_loads_become_one(graph: og.LocalGraph) -> None:
    with loading_in_bulk():
        for number in range(5):
            graph.load({"Person": [person(100 + number)], "Knows": [knows(100 + number, 1, 2)]})
    assert len(segments(graph, PERSON)) == 5
    assert len(segments(graph, KNOWS, "src_btree")) == 5
    before = told(graph)
    graph.optimize()
    assert covered(graph)
    assert len(segments(graph, PERSON)) == len(segments(graph, KNOWS, "src_btree")) == 1
    assert told(graph) == before


def test_large_pieces_are_left_alone_until_what_is_new_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_policy, "SMALL_ROWS", 4)
    graph = og.init(fresh_memory(), schema=SCHEMA_OF_CITIES)
    graph.load({"City": [{"name": f"c{number}"} for number in range(100)]})
    graph.optimize()
    [large] = fragments(graph, CITY)
    [index] = segments(graph, CITY)
    graph.load({"City": [{"name": "x0"}]})
    graph.load({"City": [{"name": "x1"}]})
    assert by_key(graph.optimize())[CITY].fragments_removed == 2
    assert fragments(graph, CITY)[0] == large
    assert [len(item.fragments) for item in segments(graph, CITY)] == [1, 1]
    assert index.fragments in [item.fragments for item in segments(graph, CITY)]
    graph.load({"City": [{"name": f"y{number}"} for number in range(48)]})
    graph.optimize()
    assert [item.rows for item in fragments(graph, CITY)] == [150]
    assert len(segments(graph, CITY)) == 1
    assert graph.optimize().commit is None


def test_a_type_that_cannot_be_read_is_told_and_does_not_stop_the_others(tmp_path: Path) -> None:
    graph = scattered(str(tmp_path / "g"))
    snapshot = graph.snapshot()
    lost = fragments(graph, KNOWS)[1].files
    (tmp_path / "g" / snapshot.pin(KNOWS).path / "data" / lost).unlink()
    found = by_key(og.open(graph.uri, durability="os").optimize())
    assert found[KNOWS].skipped == "Failed"
    assert not found[KNOWS].committed
    assert "not found" in str(found[KNOWS].error)
    assert found[KNOWS].version == snapshot.pin(KNOWS).number
    assert found[PERSON].committed
    assert len(fragments(graph, PERSON)) == 1


def test_an_index_that_cannot_be_built_is_pending_and_the_rest_counts(tmp_path: Path) -> None:
    graph = scattered(str(tmp_path / "g"))
    [lost] = fragments(graph, CITY)
    (tmp_path / "g" / graph.snapshot().pin(CITY).path / "data" / lost.files).unlink()
    found = by_key(og.open(graph.uri, durability="os").optimize())
    assert [name for name, _ in found[CITY].pending_indexes] == ["id", "name"]
    assert (found[CITY].skipped, found[CITY].committed) == (None, False)
    assert found[PERSON].committed


def test_what_optimize_left_behind_is_what_cleanup_takes(tmp_path: Path) -> None:
    from tests.maintain.graphs import NO_GRACE

    graph = scattered(str(tmp_path / "g"))
    before = told(graph)
    graph.optimize()
    repository = graph._repository
    assert cleanup(repository, keep=1, confirm=True, grace=NO_GRACE).files_removed > 20
    cold = og.open(graph.uri, durability="os")
    assert told(cold) == before
    assert covered(cold)
    assert cold.optimize().commit is None
    assert cleanup(repository, keep=1, grace=NO_GRACE).files_removed == 0


def test_no_intent_is_left(tmp_path: Path) -> None:
    graph = scattered(str(tmp_path / "g"))
    graph.optimize()
    graph.optimize()
    assert not graph._repository.intents.pending().ids


def test_it_works_in_a_bucket(s3: Bucket) -> None:
    graph = og.init(f"{s3.uri}/g", schema=SCHEMA_OF_CITIES, storage_options=s3.options)
    for number in range(3):
        graph.load({"City": [{"name": f"c{number}"}]})
    assert by_key(graph.optimize())[CITY].fragments_removed == 3
    cold = og.open(graph.uri, storage_options=s3.options)
    assert [cold.get("City", f"c{number}") is not None for number in range(4)] == [True, True, True, False]
    assert cold.optimize().commit is None


def test_progress_tells_the_stages_and_their_rows(graph: og.LocalGraph) -> None:
    said: list[Any] = []
    graph.optimize(progress=lambda stage, rows: said.append((stage, rows)))
    assert said[0] == ("compact", 0)
    assert ("compact", 15 + 4) in said
    assert said[-1] == ("index", 15 * 4 + 4 * 4 + 1 * 2)


def test_it_is_refused_where_it_cannot_work(graph: og.LocalGraph) -> None:
    with pytest.raises(InvalidInput, match="out of reach for Spark"):
        graph.optimize(engine="spark")
    with pytest.raises(InvalidInput, match="unknown engine 'flink'"):
        graph.optimize(engine="flink")  # type: ignore[arg-type]
    with pytest.raises(PermissionDenied):
        og.open(graph.uri, mode="r").optimize()
    with pytest.raises(NotFound, match="branch 'dev' not found"):
        graph.optimize(branch="dev")
