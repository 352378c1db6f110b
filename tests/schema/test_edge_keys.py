"""Schema changes of edge keys: new ids for existing edges, in one commit, or a refusal that names the edges."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import ConstraintViolation
from tests.support.places import fresh_memory

NODES = "node P { name: String @key }\n"
KEYLESS = NODES + "edge Knows: P -> P { day: Date  note: String? }\n"
PAIR = NODES + "edge Knows: P -> P { day: Date  note: String?  @key(src, dst) }\n"
DAILY = NODES + "edge Knows: P -> P { day: Date  note: String?  @key(src, dst, day) }\n"


def people() -> list[dict[str, Any]]:
    return [{"type": "P", "data": {"name": name}} for name in "abc"]


def knows(src: str, dst: str, day: int, **data: Any) -> dict[str, Any]:
    return {"edge": "Knows", "from": src, "to": dst, "data": {"day": day, **data}}


def edges(graph: og.Graph, branch: str = "main") -> dict[str, tuple[str, str, int, str | None]]:
    out = StringIO()
    graph.export(out, types=["Knows"], branch=branch)
    records = [json.loads(line) for line in out.getvalue().splitlines()]
    return {
        item["data"]["id"]: (item["from"], item["to"], item["data"]["day"], item["data"]["note"])
        for item in records
    }


def filled(schema: str, *records: dict[str, Any]) -> og.Graph:
    graph = og.init(fresh_memory(), schema)
    graph.load([*people(), *records], "append")
    return graph


def test_apply_of_a_new_edge_key_gives_existing_edges_derived_ids_in_one_commit() -> None:
    graph = filled(KEYLESS, knows("a", "b", 1, note="x"), knows("b", "a", 2))
    before = graph.commits()

    applied = graph.schema.apply(PAIR)

    assert edges(graph) == {'["a","b"]': ("a", "b", 1, "x"), '["b","a"]': ("b", "a", 2, None)}
    assert applied.applied
    assert len(graph.commits()) == len(before) + 1
    graph.load([knows("a", "b", 5)], "merge")
    assert edges(graph)['["a","b"]'] == ("a", "b", 5, None)
    assert not graph.verify().damage


def test_apply_of_a_new_edge_key_with_duplicates_names_them_and_changes_nothing() -> None:
    graph = filled(
        KEYLESS, knows("a", "b", 1, id="e1"), knows("a", "b", 2, id="e2"), knows("b", "c", 2, id="e3")
    )

    with pytest.raises(ConstraintViolation) as caught:
        graph.schema.apply(PAIR)

    assert caught.value.message == (
        "@unique violation on Knows.(src, dst): value '(a, b)' held by 'e1' and 'e2'"
    )
    assert caught.value.details["violations"] == 1
    assert "add a property to the key" in (caught.value.hint or "")
    assert graph.schema.source() == KEYLESS
    assert set(edges(graph)) == {"e1", "e2", "e3"}
    graph.schema.apply(DAILY)
    assert set(edges(graph)) == {'["a","b","1"]', '["a","b","2"]', '["b","c","2"]'}


def test_apply_of_another_edge_key_derives_the_ids_again() -> None:
    graph = filled(PAIR, knows("a", "b", 1))

    graph.schema.apply(DAILY)

    assert set(edges(graph)) == {'["a","b","1"]'}


def test_apply_without_the_edge_key_keeps_ids_and_generates_new_ones() -> None:
    graph = filled(PAIR, knows("a", "b", 1))

    graph.schema.apply(KEYLESS)
    graph.load([knows("a", "b", 1)], "append")

    assert '["a","b"]' in edges(graph)
    assert len(edges(graph)) == 2


def test_apply_of_an_edge_key_with_backfilled_property_derives_ids_from_it() -> None:
    graph = filled(NODES + "edge Knows: P -> P { day: Date  note: String? }\n", knows("a", "b", 1))
    wider = NODES + "edge Knows: P -> P { day: Date  note: String?  kind: String  @key(src, dst, kind) }\n"

    graph.schema.apply(wider, backfill={"Knows.kind": "friend"})

    assert graph.get("Knows", '["a","b","friend"]') is not None


def test_apply_of_a_renamed_key_property_keeps_the_ids() -> None:
    graph = filled(DAILY, knows("a", "b", 1))
    renamed = (
        NODES + 'edge Knows: P -> P { on: Date @rename_from("day")  note: String?  @key(src, dst, on) }\n'
    )

    graph.schema.apply(renamed)

    assert graph.get("Knows", '["a","b","1"]') is not None
    graph.mutate('query q() { insert Knows { from: "a", to: "b", on: date("1970-01-02") } }')
    assert len(graph.query("query q() { match { $a: P  $a knows $b } return { $b.name as n } }")) == 1


def test_apply_of_an_edge_key_keeps_blobs() -> None:
    schema = NODES + "edge Has: P -> P { file: Blob? }\n"
    graph = og.init(fresh_memory(), schema)
    graph.load(
        [*people(), {"edge": "Has", "from": "a", "to": "b", "data": {"file": "base64:aGk="}}], "append"
    )

    graph.schema.apply(NODES + "edge Has: P -> P { file: Blob?  @key(src, dst) }\n")

    assert graph.blob("Has", '["a","b"]', "file").read() == b"hi"


def test_earlier_snapshot_keeps_its_ids_after_a_new_edge_key() -> None:
    graph = filled(KEYLESS, knows("a", "b", 1, id="e1"))
    head = graph.commits()[0].id

    graph.schema.apply(PAIR)

    assert graph.get("Knows", "e1", at=head) is not None
    assert graph.get("Knows", "e1") is None


pairs = st.tuples(st.sampled_from("abc"), st.sampled_from("abc"), st.integers(0, 1))


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(pairs, max_size=5), st.sampled_from([PAIR, DAILY]))
def test_apply_of_any_edge_key_equals_the_naive_rule(found: list[tuple[str, str, int]], schema: str) -> None:
    graph = filled(KEYLESS, *(knows(*item) for item in found))
    width = 2 if schema == PAIR else 3
    keys = [tuple(str(part) for part in item[:width]) for item in found]

    if len(set(keys)) < len(keys):
        with pytest.raises(ConstraintViolation):
            graph.schema.apply(schema)
        assert len(edges(graph)) == len(found)
    else:
        graph.schema.apply(schema)
        assert set(edges(graph)) == {json.dumps(key, separators=(",", ":")) for key in keys}
