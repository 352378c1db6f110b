"""Catalog: hash, physical names, stored form."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pytest

from omnigraph.catalog.catalog import Catalog, accept
from omnigraph.catalog.migration.evolve import evolve
from omnigraph.catalog.migration.planner import plan_migration
from omnigraph.errors import Conflict, InvalidInput, NotFound, StorageError, UnsupportedFormat
from omnigraph.lang.pg.schema_compiler import load_schema
from tests.catalog.test_identity import TEXT, catalog_of


def test_the_hash_ignores_comments_layout_order_and_rename_hints() -> None:
    plain = catalog_of("node A { x: enum(b, a)  y: I32\n @unique(y, x) }  node B { z: I32 }")
    other = catalog_of(
        """
        // the same again
        node B { z: I32 @rename_from("old") }
        node A @rename_from("Old") { @unique(x, y) /* first */ y: I32 x: enum(a, b) }
        """
    )
    assert plain.hash == other.hash
    assert plain.hash.startswith("sha256:")
    assert len(plain.hash) == len("sha256:") + 64


@pytest.mark.parametrize(
    "text",
    [
        "node A { x: I64 }",
        "node A { x: I32? }",
        "node A { x: I32 @index }",
        "node A { x: I32\n @index(x) }",
        'node A { x: I32 @description("d") }',
        'node A @owner("o") { x: I32 }',
        "node A { x: I32\n @range(x, 0..1) }",
        "node A { x: I32\n @range(x, 0.0..1) }",
        "node A { x: I32 }  edge E: A -> A",
        "node A { x: I32 }  edge E: A -> A @card(0..1)",
        "interface I { x: I32 }  node A implements I { }",
        "interface I { x: I32 }  node A implements I { x: I32 }",
        "interface I { x: I32 }  node A { x: I32 }",
    ],
)
def test_everything_else_counts(text: str) -> None:
    texts = ["node A { x: I32 }", text]
    first, second = (catalog_of(item).hash for item in texts)
    assert first != second


def test_the_hash_is_pinned() -> None:
    # The hash is stored: a change of the canonical shape would look like a schema change in every graph.
    assert catalog_of(TEXT).hash == (
        "sha256:e28f2a515fcbc14491a9dcaeae5fd33dc04be7a9f83f564f77778cdde7b7d9bd"
    )


def test_tables_have_keys_stable_paths_and_ordered_columns() -> None:
    catalog = catalog_of(TEXT)
    assert list(catalog.tables) == ["node:City", "node:Person", "edge:At", "edge:Knows"]
    knows = catalog.tables["edge:Knows"]
    assert (knows.path, knows.id, knows.type_id) == ("edges/5", 14, 5)
    assert [(column.name, column.physical) for column in knows.columns] == [
        ("id", "id"),
        ("src", "src"),
        ("dst", "dst"),
        ("since", "since_10"),
    ]
    assert [column.name for column in catalog.table("node", "Person").columns] == ["id", "age", "name"]


def test_an_edge_table_is_found_in_any_case_and_a_node_table_is_not() -> None:
    catalog = catalog_of(TEXT)
    assert catalog.table("edge", "knows") is catalog.tables["edge:Knows"]
    with pytest.raises(NotFound, match="unknown node type 'person'"):
        catalog.table("node", "person")
    with pytest.raises(NotFound, match="node type 'City' has no column 'mayor'"):
        catalog.table("node", "City").physical("mayor")


def test_the_stored_form_is_pinned() -> None:
    text = 'node A @description("d") { k: String @key  v: Vector(2)? @embed(k, model="m")\n @check(k, "x") }'
    assert catalog_of(text).to_json() == {
        "format": 1,
        "hash": catalog_of(text).hash,
        "source": text,
        "next_id": 5,
        "interfaces": [],
        "nodes": [
            {
                "id": 1,
                "table": 4,
                "name": "A",
                "annotations": [{"name": "description", "value": "d"}],
                "constraints": [{"Check": {"property": "k", "pattern": "x"}}],
                "properties": [
                    {
                        "id": 2,
                        "column": "k_2",
                        "name": "k",
                        "type": {"scalar": "String", "nullable": False, "list": False, "enum_values": None},
                        "inherited": False,
                        "annotations": [{"name": "key", "value": None}],
                    },
                    {
                        "id": 3,
                        "column": "v_3",
                        "name": "v",
                        "type": {
                            "scalar": {"Vector": 2},
                            "nullable": True,
                            "list": False,
                            "enum_values": None,
                        },
                        "inherited": False,
                        "annotations": [{"name": "embed", "value": "k", "kwargs": {"model": "m"}}],
                    },
                ],
                "implements": [],
            }
        ],
        "edges": [],
    }


def test_a_compiled_schema_survives_its_stored_form() -> None:
    catalog = catalog_of(TEXT)
    assert Catalog.from_json(json.loads(json.dumps(catalog.to_json()))) == catalog


def test_a_later_format_is_refused() -> None:
    with pytest.raises(UnsupportedFormat, match="format 2"):
        Catalog.from_json({**catalog_of(TEXT).to_json(), "format": 2})


@pytest.mark.parametrize("damage", [{"hash": "sha256:0"}, {"nodes": None}, {"edges": [{}]}, {"nodes": []}])
def test_a_damaged_form_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(StorageError, match="the stored schema is corrupt"):
        Catalog.from_json({**catalog_of(TEXT).to_json(), **damage})


def test_evolving_without_steps_keeps_the_catalog_and_its_text() -> None:
    catalog = catalog_of("node A { x: I32 }")
    desired = load_schema("// only a comment\nnode A { x: I32 }")
    assert evolve(catalog, desired, "new text", plan_migration(catalog, desired)) is catalog


def test_evolving_with_an_unsupported_plan_is_refused_with_its_first_reason() -> None:
    catalog = catalog_of("node A { x: I32 }")
    desired = load_schema("node A { x: I64 }")
    with pytest.raises(InvalidInput, match=r"^\[OG-MF-106\] changing property type for 'A.x' is not"):
        evolve(catalog, desired, "", plan_migration(catalog, desired))


def test_evolving_with_a_plan_for_another_schema_is_a_conflict() -> None:
    desired = load_schema("node A { x: I32  y: I32? }")
    stale = plan_migration(catalog_of("node A { x: I32 }"), desired)
    with pytest.raises(Conflict, match="plan again"):
        evolve(catalog_of("node B { x: I32 }"), desired, "", stale)


def test_evolving_with_hard_drops_is_fine() -> None:
    catalog = catalog_of("node A { x: I32  y: I32? }")
    desired = load_schema("node A { x: I32 }")
    after = evolve(catalog, desired, "v2", plan_migration(catalog, desired, allow_data_loss=True))
    assert (after.source, list(after.schema.nodes[0].by_name)) == ("v2", ["x"])


def test_rename_hints_mean_nothing_on_a_new_graph() -> None:
    schema = load_schema('node A @rename_from("B") { x: I32 @rename_from("y") }')
    assert accept(schema, "").next_id == 4


def test_a_catalog_pickles_after_it_has_been_used() -> None:
    text = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
    catalog = accept(load_schema(text), text)
    used = catalog.tables["node:Person"], catalog.schema.nodes[0].by_name["age"], catalog.schema.edge("knows")
    twin = pickle.loads(pickle.dumps(catalog))
    assert twin == catalog
    assert (
        twin.tables["node:Person"],
        twin.schema.nodes[0].by_name["age"],
        twin.schema.edge("knows"),
    ) == used
    assert twin.fingerprint == catalog.fingerprint


def test_equal_tables_have_equal_hashes_and_other_columns_make_another_table() -> None:
    text = "node A { x: I32  y: I32 }"
    first, again = catalog_of(text).tables["node:A"], catalog_of(text).tables["node:A"]
    assert (first == again, hash(first) == hash(again)) == (True, True)
    changed = replace(first, columns=first.columns[:-1])
    assert len({first, again, changed}) == 2
