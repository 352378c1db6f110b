"""Schema compiler. The golden corpus covers the message of every rule."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.pg.schema_ast import EdgeDecl, Name, NodeDecl, SchemaFile
from omnigraph.lang.pg.schema_compiler import compile_schema, load_schema
from omnigraph.lang.pg.schema_notation import literal_text
from omnigraph.lang.schema import Cardinality, Check, Embed, Index, Key, Range, Schema, Unique
from omnigraph.lang.source import Source
from omnigraph.lang.types import BASE_TYPES, NUMERIC, Scalar
from tests.golden.schema_rendering import render_schema


def problems(text: str) -> list[str]:
    with pytest.raises(LanguageError) as caught:
        load_schema(text)
    return [item.text for item in caught.value.diagnostics]


def test_types_and_properties_are_sorted_by_name() -> None:
    schema = load_schema("node B { z: I32 a: I32 } node A {} edge Y: A -> B edge X: B -> A interface I {}")
    assert [item.name for item in schema.nodes] == ["A", "B"]
    assert [item.name for item in schema.edges] == ["X", "Y"]
    assert [item.name for item in schema.nodes[1].properties] == ["a", "z"]


def test_order_of_declarations_layout_and_comments_do_not_matter() -> None:
    one = load_schema("node A { x: I32 y: enum(b, a) } node B {} edge E: A -> B")
    two = load_schema("edge E:A->B{} // x\nnode B{}node A{y:enum(a,b)x:I32}")
    assert one == two
    assert render_schema(one) == render_schema(two)


def test_enum_values_are_sorted() -> None:
    schema = load_schema("node A { x: enum(b, B, a, 1) }")
    assert schema.nodes[0].properties[0].type.enum_values == ("1", "B", "a", "b")


def test_constraints_keep_their_columns_as_written() -> None:
    schema = load_schema("node A { b: I32 a: I32 @key(b, a) @unique(b, a) @index(a) }")
    node = schema.node("A")
    assert node is not None
    assert node.constraints == (Key(("b", "a")), Unique(("b", "a")), Index(("a",)))
    assert node.key == ("b", "a")


def test_the_bound_without_a_minimum_is_the_maximum() -> None:
    schema = load_schema("node A { x: I32 @range(x, ..10) @range(x, 0..) }")
    assert schema.nodes[0].constraints == (Range("x", None, 10), Range("x", 0, None))


def test_whole_bounds_stay_whole_and_fractional_ones_fractional() -> None:
    found = load_schema("node A { x: F64 @range(x, 1..2.0) }").nodes[0].constraints[0]
    assert isinstance(found, Range)
    assert (type(found.min), type(found.max)) == (int, float)


def test_annotation_and_body_form_of_a_constraint_are_both_effective() -> None:
    schema = load_schema("node A { x: I32 @unique @index y: I32 @unique(y) @index(x) }")
    assert schema.nodes[0].uniques == (("x",), ("y",))
    assert schema.nodes[0].indexes == (("x",),)


def test_a_check_keeps_its_pattern_unescaped() -> None:
    schema = load_schema(r'node A { x: String @check(x, "\\d+\"") }')
    assert schema.nodes[0].constraints == (Check("x", '\\d+"'),)


def test_a_cardinality_defaults_to_anything() -> None:
    schema = load_schema("node A {} edge E: A -> A edge F: A -> A @card(1..2)")
    assert [item.cardinality for item in schema.edges] == [Cardinality(), Cardinality(1, 2)]
    assert schema.edges[0].cardinality.is_default


def test_an_embedding_may_name_its_source_bare_or_quoted() -> None:
    schema = load_schema('node A { t: String v: Vector(2) @embed(t) w: Vector(2) @embed("t", model="m") }')
    node = schema.nodes[0]
    assert [node.by_name["v"].embed, node.by_name["w"].embed] == [Embed("t"), Embed("t", "m")]


def test_an_inherited_property_brings_its_annotations_and_is_marked() -> None:
    schema = load_schema('interface I { k: String @key @description("d") } node A implements I { x: I32 }')
    prop = schema.nodes[0].by_name["k"]
    assert prop.inherited
    assert [item.name for item in prop.annotations] == ["key", "description"]
    assert schema.nodes[0].key == ("k",)
    assert not schema.nodes[0].by_name["x"].inherited


def test_a_declared_property_is_not_inherited() -> None:
    schema = load_schema("interface I { k: String @key } node A implements I { k: String }")
    assert not schema.nodes[0].by_name["k"].inherited
    assert schema.nodes[0].key is None


def test_the_interfaces_of_a_node_are_kept_in_order() -> None:
    schema = load_schema("interface B {} interface A {} node N implements B, A {}")
    assert schema.nodes[0].implements == ("B", "A")


def test_an_edge_is_found_whatever_its_case() -> None:
    schema = load_schema("node A {} edge WorksAt: A -> A")
    assert schema.edge("worksAt") is schema.edge("worksat") is schema.edges[0]
    assert schema.edge("works_at") is None


@pytest.mark.parametrize("name", sorted(BASE_TYPES))
def test_a_range_applies_to_numbers_only(name: str) -> None:
    text = f"node A {{ x: {name} @range(x, 0..1) }}"
    if BASE_TYPES[name] in NUMERIC:
        assert load_schema(text).nodes[0].constraints == (Range("x", 0, 1),)
    else:
        assert problems(text) == [f"parse error: @range on A.x requires a numeric type, got {name}"]


@pytest.mark.parametrize("name", sorted(BASE_TYPES))
def test_a_check_applies_to_strings_only(name: str) -> None:
    text = f'node A {{ x: {name} @check(x, "a") }}'
    if BASE_TYPES[name] is Scalar.STRING:
        assert load_schema(text).nodes[0].constraints == (Check("x", "a"),)
    else:
        assert problems(text) == [f"parse error: @check on A.x requires String type, got {name}"]


@pytest.mark.parametrize("form", ["x: {} @{}", "x: {} @{}(x)"])
@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        ("String", set[str]()),
        ("F32", set[str]()),
        ("enum(a)", set[str]()),
        ("[String]", {"key", "unique", "index"}),
        ("Blob", {"key", "unique", "index"}),
        ("Vector(2)", {"key", "unique"}),
    ],
)
@pytest.mark.parametrize("name", ["key", "unique", "index"])
def test_which_shapes_a_constraint_applies_to(form: str, kind: str, refused: set[str], name: str) -> None:
    text = f"node A {{ {form.format(kind, name)} }}"
    if name in refused:
        assert len(problems(text)) == 1
        assert f"@{name} is not supported on" in problems(text)[0]
    else:
        assert load_schema(text).nodes[0].effective_constraints


def test_constraints_on_edges_may_name_the_ends() -> None:
    schema = load_schema("node A {} edge E: A -> A { x: I32 @unique(src, dst, x) @index(dst) }")
    assert schema.edges[0].uniques == (("src", "dst", "x"),)
    assert schema.edges[0].indexes == (("dst",),)


def test_errors_come_in_source_order_with_their_phase() -> None:
    found = problems("edge E: A -> B { id: I32 }\nnode C { x: I32? @key }\nnode C {}")
    assert [text.split(":")[0] for text in found] == [
        "catalog error",
        "catalog error",
        "parse error",
        "parse error",
        "catalog error",
    ]


def test_a_missing_interface_is_the_only_error_about_its_properties() -> None:
    text = 'node A implements I { v: Vector(2) @embed(t) @key(k) @check(k, "x") }'
    assert problems(text) == ["parse error: node A implements unknown interface 'I'"]


def test_a_property_declared_twice_does_not_confuse_other_rules() -> None:
    text = "node A { v: Vector(2) @embed(t) v: I32 t: I32 }"
    assert problems(text) == [
        "parse error: @embed source property A.t must be String",
        "catalog error: duplicate property 'A.v'",
    ]


def test_a_hint_stands_beside_the_message_and_not_in_it() -> None:
    with pytest.raises(LanguageError) as caught:
        load_schema("node Person {} edge E: Persn -> Person")
    (found,) = caught.value.diagnostics
    assert found.message == "edge E references unknown source type: Persn"
    assert found.hint == "did you mean `Person`?"


def test_a_schema_built_without_text_compiles_too() -> None:
    file = SchemaFile((NodeDecl("A"), EdgeDecl("E", Name("A"), Name("A"))))
    assert compile_schema(file, Source("")) == load_schema("node A {} edge E: A -> A")


def test_a_compiled_schema_cannot_be_changed() -> None:
    schema = load_schema("node A {}")
    with pytest.raises(FrozenInstanceError):
        schema.nodes = ()  # type: ignore[misc]


def test_different_schemas_render_differently() -> None:
    base = "node A { x: String } edge E: A -> A"
    variants = [
        base,
        "node A { x: String? } edge E: A -> A",
        "node A { x: String @index } edge E: A -> A",
        "node A { x: String @index(x) } edge E: A -> A",
        "node A { x: String } edge E: A -> A @card(0..1)",
        "interface I { x: String } node A implements I {} edge E: A -> A",
        "interface I { x: String } node A implements I { x: String } edge E: A -> A",
    ]
    assert len({render_schema(load_schema(text)) for text in variants}) == len(variants)


def test_an_empty_schema_is_said_to_be_empty() -> None:
    assert load_schema("") == Schema()
    assert render_schema(Schema()) == "(empty schema)\n"


@pytest.mark.parametrize("value", [0.0, -0.0, 1e16, 1e-7, 123.456, 1.7976931348623157e308, 5e-324])
def test_a_float_is_written_without_an_exponent_and_reads_back(value: float) -> None:
    text = literal_text(value)
    assert "e" not in text
    assert repr(float(text)) == repr(value)
