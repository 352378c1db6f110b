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


def test_compile_schema_sorts_types_and_properties_by_name() -> None:
    schema = load_schema("node B { z: I32 a: I32 } node A {} edge Y: A -> B edge X: B -> A interface I {}")
    assert [item.name for item in schema.nodes] == ["A", "B"]
    assert [item.name for item in schema.edges] == ["X", "Y"]
    assert [item.name for item in schema.nodes[1].properties] == ["a", "z"]


def test_compile_schema_ignores_order_layout_and_comments() -> None:
    one = load_schema("node A { x: I32 y: enum(b, a) } node B {} edge E: A -> B")
    two = load_schema("edge E:A->B{} // x\nnode B{}node A{y:enum(a,b)x:I32}")
    assert one == two
    assert render_schema(one) == render_schema(two)


def test_compile_enum_sorts_its_values() -> None:
    schema = load_schema("node A { x: enum(b, B, a, 1) }")
    assert schema.nodes[0].properties[0].type.enum_values == ("1", "B", "a", "b")


def test_compile_constraint_keeps_the_order_of_columns() -> None:
    schema = load_schema("node A { b: I32 a: I32 @key(b, a) @unique(b, a) @index(a) }")
    node = schema.node("A")
    assert node is not None
    assert node.constraints == (Key(("b", "a")), Unique(("b", "a")), Index(("a",)))
    assert node.key == ("b", "a")


def test_compile_range_with_one_bound_leaves_the_other_open() -> None:
    schema = load_schema("node A { x: I32 @range(x, ..10) @range(x, 0..) }")
    assert schema.nodes[0].constraints == (Range("x", None, 10), Range("x", 0, None))


def test_compile_range_keeps_integer_and_float_bounds() -> None:
    found = load_schema("node A { x: F64 @range(x, 1..2.0) }").nodes[0].constraints[0]
    assert isinstance(found, Range)
    assert (type(found.min), type(found.max)) == (int, float)


def test_compile_constraint_as_annotation_or_body_takes_effect() -> None:
    schema = load_schema("node A { x: I32 @unique @index y: I32 @unique(y) @index(x) }")
    assert schema.nodes[0].uniques == (("x",), ("y",))
    assert schema.nodes[0].indexes == (("x",),)


def test_compile_check_keeps_its_unescaped_pattern() -> None:
    schema = load_schema(r'node A { x: String @check(x, "\\d+\"") }')
    assert schema.nodes[0].constraints == (Check("x", '\\d+"'),)


def test_compile_edge_without_cardinality_has_the_default() -> None:
    schema = load_schema("node A {} edge E: A -> A edge F: A -> A @card(1..2)")
    assert [item.cardinality for item in schema.edges] == [Cardinality(), Cardinality(1, 2)]
    assert schema.edges[0].cardinality.is_default


def test_compile_embed_accepts_bare_or_quoted_source() -> None:
    schema = load_schema('node A { t: String v: Vector(2) @embed(t) w: Vector(2) @embed("t", model="m") }')
    node = schema.nodes[0]
    assert [node.by_name["v"].embed, node.by_name["w"].embed] == [Embed("t"), Embed("t", "m")]


def test_compile_inherited_property_keeps_annotations_and_is_marked() -> None:
    schema = load_schema('interface I { k: String @key @description("d") } node A implements I { x: I32 }')
    prop = schema.nodes[0].by_name["k"]
    assert prop.inherited
    assert [item.name for item in prop.annotations] == ["key", "description"]
    assert schema.nodes[0].key == ("k",)
    assert not schema.nodes[0].by_name["x"].inherited


def test_compile_redeclared_property_is_not_inherited() -> None:
    schema = load_schema("interface I { k: String @key } node A implements I { k: String }")
    assert not schema.nodes[0].by_name["k"].inherited
    assert schema.nodes[0].key is None


def test_compile_node_keeps_the_order_of_interfaces() -> None:
    schema = load_schema("interface B {} interface A {} node N implements B, A {}")
    assert schema.nodes[0].implements == ("B", "A")


def test_schema_edge_lookup_ignores_case() -> None:
    schema = load_schema("node A {} edge WorksAt: A -> A")
    assert schema.edge("worksAt") is schema.edge("worksat") is schema.edges[0]
    assert schema.edge("works_at") is None


@pytest.mark.parametrize("name", sorted(BASE_TYPES))
def test_compile_range_on_non_number_is_refused(name: str) -> None:
    text = f"node A {{ x: {name} @range(x, 0..1) }}"
    if BASE_TYPES[name] in NUMERIC:
        assert load_schema(text).nodes[0].constraints == (Range("x", 0, 1),)
    else:
        assert problems(text) == [f"parse error: @range on A.x requires a numeric type, got {name}"]


@pytest.mark.parametrize("name", sorted(BASE_TYPES))
def test_compile_check_on_non_string_is_refused(name: str) -> None:
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
def test_compile_constraint_on_unsupported_type_is_refused(
    form: str, kind: str, refused: set[str], name: str
) -> None:
    text = f"node A {{ {form.format(kind, name)} }}"
    if name in refused:
        assert len(problems(text)) == 1
        assert f"@{name} is not supported on" in problems(text)[0]
    else:
        assert load_schema(text).nodes[0].effective_constraints


def test_compile_edge_constraint_accepts_src_and_dst() -> None:
    schema = load_schema("node A {} edge E: A -> A { x: I32 @unique(src, dst, x) @index(dst) }")
    assert schema.edges[0].uniques == (("src", "dst", "x"),)
    assert schema.edges[0].indexes == (("dst",),)


def test_compile_errors_are_in_source_order_with_their_phase() -> None:
    found = problems("edge E: A -> B { id: I32 }\nnode C { x: I32? @key }\nnode C {}")
    assert [text.split(":")[0] for text in found] == [
        "catalog error",
        "catalog error",
        "parse error",
        "parse error",
        "catalog error",
    ]


def test_compile_error_of_missing_interface_hides_errors_of_its_properties() -> None:
    text = 'node A implements I { v: Vector(2) @embed(t) @key(k) @check(k, "x") }'
    assert problems(text) == ["parse error: node A implements unknown interface 'I'"]


def test_compile_duplicate_property_keeps_other_errors() -> None:
    text = "node A { v: Vector(2) @embed(t) v: I32 t: I32 }"
    assert problems(text) == [
        "parse error: @embed source property A.t must be String",
        "catalog error: duplicate property 'A.v'",
    ]


def test_compile_error_has_its_hint_apart_from_the_message() -> None:
    with pytest.raises(LanguageError) as caught:
        load_schema("node Person {} edge E: Persn -> Person")
    (found,) = caught.value.diagnostics
    assert found.message == "edge E references unknown source type: Persn"
    assert found.hint == "did you mean `Person`?"


def test_compile_schema_built_without_text() -> None:
    file = SchemaFile((NodeDecl("A"), EdgeDecl("E", Name("A"), Name("A"))))
    assert compile_schema(file, Source("")) == load_schema("node A {} edge E: A -> A")


def test_compiled_schema_is_immutable() -> None:
    schema = load_schema("node A {}")
    with pytest.raises(FrozenInstanceError):
        schema.nodes = ()  # type: ignore[misc]


def test_render_of_different_schemas_differs() -> None:
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


def test_render_of_empty_schema_says_so() -> None:
    assert load_schema("") == Schema()
    assert render_schema(Schema()) == "(empty schema)\n"


@pytest.mark.parametrize("value", [0.0, -0.0, 1e16, 1e-7, 123.456, 1.7976931348623157e308, 5e-324])
def test_literal_text_of_float_has_no_exponent_and_round_trips(value: float) -> None:
    text = literal_text(value)
    assert "e" not in text
    assert repr(float(text)) == repr(value)
