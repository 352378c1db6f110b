"""The text of a compiled schema is lossless."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.schema_text import schema_text
from omnigraph.catalog.shape import canonical_shape, schema_hash
from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.pg.format_schema import format_schema
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.lang.schema import Schema
from tests.catalog.compiled import compiled_schemas, legal_schemas
from tests.catalog.strategies import shuffled
from tests.golden.corpus import cases, input_text

LAW = settings(max_examples=30, deadline=None)


def golden_schemas() -> dict[str, Schema]:
    found = {}
    for case in cases("schema", ".pg"):
        try:
            found[case] = load_schema(input_text("schema", f"{case}.pg"))
        except LanguageError:
            continue
    return found


GOLDEN = golden_schemas()


@pytest.mark.parametrize("schema", GOLDEN.values(), ids=list(GOLDEN))
def test_a_schema_of_the_corpus_is_loaded_back_from_its_text(schema: Schema) -> None:
    assert schema_hash(load_schema(schema_text(schema))) == schema_hash(schema)


@LAW
@given(legal_schemas)
def test_a_text_says_all_that_a_schema_declares(schema: Schema) -> None:
    found = load_schema(schema_text(schema))
    declared = (
        replace(node, properties=tuple(item for item in node.properties if not item.inherited))
        for node in found.nodes
    )
    assert canonical_shape(replace(found, nodes=tuple(declared))) == canonical_shape(schema)


@LAW
@given(compiled_schemas)
def test_a_compiled_schema_is_loaded_back_from_its_text(schema: Schema) -> None:
    assert schema_hash(load_schema(schema_text(schema))) == schema_hash(schema)


@LAW
@given(compiled_schemas, st.integers())
def test_a_text_is_canonical(schema: Schema, seed: int) -> None:
    text = schema_text(schema)
    other = shuffled(schema, seed)
    by_name = {node.name: node for node in schema.nodes}
    kept = (replace(node, implements=by_name[node.name].implements) for node in other.nodes)
    assert schema_text(replace(other, nodes=tuple(kept))) == text
    assert format_schema(text) == text


def test_the_first_interface_stays_first() -> None:
    schema = load_schema(
        """
        interface Z { p: I32 @description("z") }
        interface A { p: I32 @description("a") }
        node N implements Z, A { }
        """
    )
    assert schema_hash(load_schema(schema_text(schema))) == schema_hash(schema)


def test_inherited_properties_and_rename_hints_are_not_written() -> None:
    text = """
    interface Named { name: String @key }
    node Person @rename_from("Human") implements Named { age: I32? @rename_from("years") }
    """
    assert schema_text(load_schema(text)) == (
        "interface Named {\n  name: String @key\n}\n\nnode Person implements Named {\n  age: I32?\n}\n"
    )


def test_an_empty_schema_has_an_empty_text() -> None:
    assert schema_text(Schema()) == ""
