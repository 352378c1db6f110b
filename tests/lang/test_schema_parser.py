"""Schema parser: AST and syntax errors."""

from __future__ import annotations

import pytest

from omnigraph.lang.diagnostics import MAX_DIAGNOSTICS, LanguageError
from omnigraph.lang.pg.schema_ast import (
    AnnotationDecl,
    BodyConstraint,
    Bounds,
    CardDecl,
    EdgeDecl,
    InterfaceDecl,
    Name,
    NodeDecl,
    PropertyDecl,
    SchemaFile,
)
from omnigraph.lang.pg.schema_parser import parse_schema
from omnigraph.lang.source import Source, Span
from omnigraph.lang.types import STRING, PropType, Scalar, vector


def parse(text: str) -> SchemaFile:
    return parse_schema(Source(text, "s.pg"))


def refusals(text: str) -> list[str]:
    with pytest.raises(LanguageError) as caught:
        parse(text)
    return [item.text for item in caught.value.diagnostics]


def node(text: str) -> NodeDecl:
    (found,) = parse(text).declarations
    assert isinstance(found, NodeDecl)
    return found


def edge(text: str) -> EdgeDecl:
    (found,) = parse(text).declarations
    assert isinstance(found, EdgeDecl)
    return found


# --- what is said ----------------------------------------------------------------------------------------


def test_parse_empty_schema_returns_no_declaration() -> None:
    assert parse("") == parse(" \t\r\n// x\n/* y */") == SchemaFile()


def test_parse_schema_keeps_the_order_of_declarations() -> None:
    found = parse("edge B: A -> A node A {} interface C {}").declarations
    assert [type(item) for item in found] == [EdgeDecl, NodeDecl, InterfaceDecl]


@pytest.mark.parametrize(
    "name", ["node", "edge", "interface", "implements", "enum", "true", "false", "key", "card", "_", "_1aB"]
)
def test_parse_property_accepts_the_name(name: str) -> None:
    text = f"interface I {{ {name}: String }} node A {{ {name}: String @key }}"
    interface, found = parse(text).declarations
    assert isinstance(interface, InterfaceDecl)
    assert isinstance(found, NodeDecl)
    assert interface.properties == (PropertyDecl(name, STRING),)
    assert found.members == (PropertyDecl(name, STRING, (AnnotationDecl("key"),)),)


@pytest.mark.parametrize("before", ["@x", "@key", "@x(1)", "@x(y)", "@unique(y)", "? ", "@x @range(y, ..1)"])
@pytest.mark.parametrize("name", ["node", "edge", "interface", "implements", "enum", "true", "card"])
def test_parse_property_named_like_a_keyword_after_any_member(name: str, before: str) -> None:
    (found,) = parse(f"node A {{ y: I32 {before} {name}: String }}").declarations
    assert isinstance(found, NodeDecl)
    assert found.members[-1] == PropertyDecl(name, STRING)


@pytest.mark.parametrize("name", ["node", "edge", "interface", "implements", "enum", "key", "unique", "card"])
def test_parse_keyword_as_constraint_argument(name: str) -> None:
    found = node(f"node A {{ @unique({name}) x: String @embed({name}) @note(x, {name}=1) }}")
    assert found.members == (
        BodyConstraint("unique", (Name(name),)),
        PropertyDecl(
            "x",
            STRING,
            (AnnotationDecl("embed", Name(name)), AnnotationDecl("note", Name("x"), ((name, 1),))),
        ),
    )


@pytest.mark.parametrize(
    "text", ["nodeA {}", "node A implementsB {}", "edgeA: B -> C", "interfaceA {}", "node A { x: enumm(a) }"]
)
def test_parse_keyword_joined_with_a_name_is_refused(text: str) -> None:
    assert refusals(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("String", STRING),
        ("Date?", PropType(Scalar.DATE, nullable=True)),
        ("DateTime", PropType(Scalar.DATETIME)),
        ("[I32]", PropType(Scalar.I32, is_list=True)),
        ("[ U64 ] ?", PropType(Scalar.U64, is_list=True, nullable=True)),
        ("Vector(007)", vector(7)),
        ("Vector(3)?", vector(3).optional),
        ("enum(b, a-1, 2)", PropType(Scalar.STRING, enum_values=("b", "a-1", "2"))),
        ("enum(-)?", PropType(Scalar.STRING, nullable=True, enum_values=("-",))),
    ],
)
def test_parse_property_type_returns_the_type(text: str, expected: PropType) -> None:
    assert node(f"node A {{ x: {text} }}").members == (PropertyDecl("x", expected),)


@pytest.mark.parametrize("name", ["key", "unique", "index", "range", "check"])
def test_parse_constraint_name_with_parenthesis_is_a_body_constraint(name: str) -> None:
    assert node(f"node A {{ value: String @{name}(value) }}").members == (
        PropertyDecl("value", STRING),
        BodyConstraint(name, (Name("value"),)),
    )


@pytest.mark.parametrize("between", ["", " ", "\n", " /* x */ ", "// x\n"])
def test_parse_constraint_with_whitespace_between_its_parts(between: str) -> None:
    found = node(f"node A {{ x: String @{between}key{between}(x) }}")
    assert found.members[1] == BodyConstraint("key", (Name("x"),))


def test_parse_constraint_name_without_parenthesis_annotates_the_property() -> None:
    found = node("node A { x: String @unique @index y: I32 @key }")
    assert found.members == (
        PropertyDecl("x", STRING, (AnnotationDecl("unique"), AnnotationDecl("index"))),
        PropertyDecl("y", PropType(Scalar.I32), (AnnotationDecl("key"),)),
    )


def test_parse_name_beginning_like_a_constraint_is_an_annotation() -> None:
    found = node('node A { x: String @keyed("a") @check_me(x) }')
    assert found.members == (
        PropertyDecl("x", STRING, (AnnotationDecl("keyed", "a"), AnnotationDecl("check_me", Name("x")))),
    )


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("0..1", Bounds(0, 1)),
        ("0..", Bounds(0, None)),
        ("..10", Bounds(None, 10)),
        ("-1.5 .. -0.5", Bounds(-1.5, -0.5)),
        ("..-3", Bounds(None, -3)),
        ("- 3..", Bounds(-3, None)),
        ("0.5..1", Bounds(0.5, 1)),
        ("0..18446744073709551615", Bounds(0, 2**64 - 1)),
    ],
)
def test_parse_range_returns_its_bounds(text: str, bounds: Bounds) -> None:
    found = node(f"node A {{ @range(x, {text}) }}").members[0]
    assert found == BodyConstraint("range", (Name("x"), bounds))
    # 1 == 1.0 in Python, so that equality does not detect an integer that became a float.
    assert isinstance(found, BodyConstraint)
    read = found.arguments[1]
    assert isinstance(read, Bounds)
    assert (type(read.low), type(read.high)) == (type(bounds.low), type(bounds.high))


@pytest.mark.parametrize(
    ("text", "value"),
    [('"a"', "a"), ("5", 5), ("1.50", 1.5), ("true", True), ("false", False), ("truely", Name("truely"))],
)
def test_parse_annotation_accepts_any_literal_or_name(text: str, value: str | float | Name) -> None:
    (found,) = node(f"node A @note({text}, k={'1' if isinstance(value, Name) else text}) {{}}").annotations
    expected = 1 if isinstance(value, Name) else value
    assert found == AnnotationDecl("note", value, (("k", expected),))
    assert type(found.value) is type(value)


def test_parse_edge_header_with_cardinality_and_annotations() -> None:
    found = edge('edge E: A -> B @card(1..2) @description("x") { since: Date? @unique(src, dst) }')
    assert found == EdgeDecl(
        "E",
        Name("A"),
        Name("B"),
        CardDecl(1, 2),
        (AnnotationDecl("description", "x"),),
        (
            PropertyDecl("since", PropType(Scalar.DATE, nullable=True)),
            BodyConstraint("unique", (Name("src"), Name("dst"))),
        ),
    )


def test_parse_edge_with_open_cardinality_and_no_body() -> None:
    assert edge("edge E: A -> B @card(2..)") == edge("edge E:A->B@card(2 ..){}")
    assert edge("edge E: A -> B @card(2..)").card == CardDecl(2, None)


@pytest.mark.parametrize("place", ["node A @card {}", "node A @card(1) {}"])
def test_parse_card_outside_edge_header_is_an_annotation(place: str) -> None:
    assert node(place).annotations[0].name == "card"


def test_parse_node_returns_its_interfaces() -> None:
    assert node("node A @x implements B, C {}") == NodeDecl(
        "A", (AnnotationDecl("x"),), (Name("B"), Name("C"))
    )


def test_parse_schema_ignores_byte_order_mark_at_the_start() -> None:
    assert parse("\ufeffnode A {}") == parse("node A {}")
    assert refusals("node A {} \ufeff")


def test_parse_schema_spans_cover_names_types_and_constraints() -> None:
    text = "node Ab { cd: [I32]? @key @unique(cd) }"
    found = node(text)
    prop, constraint = found.members
    assert isinstance(prop, PropertyDecl)

    def at(span: Span) -> str:
        return text[span.start : span.end]

    assert [at(found.span), at(prop.span), at(prop.type_span)] == ["Ab", "cd", "[I32]?"]
    assert [at(prop.annotations[0].span), at(constraint.span)] == ["@key", "@unique(cd)"]


# --- what is refused -------------------------------------------------------------------------------------


def test_parse_errors_report_every_broken_declaration_once() -> None:
    text = "node A { x }\nnode B { x: I32 }\nedge C: A\nnode D { y: }\ninterface E { @x }"
    with pytest.raises(LanguageError) as caught:
        parse(text)
    assert [item.line for item in caught.value.diagnostics] == [1, 3, 4, 5]


def test_parse_errors_after_missing_brace_include_the_next_declaration() -> None:
    with pytest.raises(LanguageError) as caught:
        parse("node A {\n  x: I32\n\nnode B {\n  y: }\n")
    first, second = caught.value.diagnostics
    assert "unexpected end of the declaration" in first.text
    assert (first.line, first.column, second.line) == (2, 9, 5)


def test_parse_error_recovery_ignores_properties_named_like_keywords() -> None:
    with pytest.raises(LanguageError) as caught:
        parse("node A {\n  node: String\n  edge: String\n  x y\n}\nnode B {}")
    assert [item.line for item in caught.value.diagnostics] == [4]


def test_parse_errors_report_wrong_escapes_and_syntax_errors_together() -> None:
    found = refusals('node A @description("\\q") {}\nnode B { x }\nnode C { y: Strin }')
    assert len(found) == 3
    assert found[0] == r"parse error: unsupported escape sequence: \q"
    assert found[2] == "parse error: unknown type: Strin"


def test_parse_error_span_counts_bytes() -> None:
    with pytest.raises(LanguageError) as caught:
        parse('node A @x("é") { ! }')
    assert caught.value.details["diagnostics"][0]["span"] == {"start": 18, "end": 19}


def test_parse_errors_are_limited_in_number() -> None:
    with pytest.raises(LanguageError) as caught:
        parse("node A { x }\n" * 5000)
    assert len(caught.value.diagnostics) == MAX_DIAGNOSTICS


HOSTILE = {
    "parentheses": "(" * 100_000,
    "brackets": "[" * 100_000,
    "braces": "{" * 100_000,
    "brackets in a type": "node A { x: " + "[" * 100_000,
    "comment openers": "/*" * 100_001,
    "quotes": '"' * 100_001,
    "backslashes": 'node A @x("' + "\\" * 100_001,
    "nulls": "\x00" * 1000,
    "unpaired surrogate": "\ud800",
    "unpaired surrogate in a string": 'node A @x("\ud800") {}',
    "keywords": "node " * 20_000,
    "at signs": "@" * 100_000,
    "a huge dimension": "node A { x: Vector(" + "9" * 10_000 + ") }",
    "a huge bound": "node A { @range(x, " + "9" * 10_000 + "..) }",
    "a huge fraction": "node A { @range(x, " + "9" * 10_000 + ".0..) }",
    "a huge cardinality": "edge E: A -> B @card(" + "9" * 10_000 + "..)",
    "two byte-order marks": "\ufeff\ufeff",
    "a brace too many": "node A {} }",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_parse_hostile_text_raises_language_error(case: str) -> None:
    assert refusals(HOSTILE[case])


@pytest.mark.parametrize(
    "text",
    [
        "node A { x: I32, y: I32 }",
        "node A {}; node B {}",
        "node A { x: I32 = 5 }",
        "node A { @key() }",
        "node A { @range(x, ..) }",
        "node A { @range(x, -5) }",
        "node A { @x(-5) y: I32 }",
        "node A { x: I32 @note(-5) }",
        "node A { x: I32 @note() }",
        "node A { x: I32 @note(k=1) }",
        "node A { x: I32 @Note }",
        "node A { x: enum() }",
        "node A { x: enum(a,) }",
        "node A { x: Vector(1.5) }",
        "node A { x: Vector() }",
        "node A implements {}",
        "node A implements B, {}",
        "node A implements B @x {}",
        "node a {}",
        "node A",
        "edge A: B",
        "edge A: B -> c",
        "edge A: B -> C @card(..1)",
        "edge A: B -> C @card(-1..1)",
        "edge A: B -> C @card",
        "interface A @x {}",
        "interface A implements B {}",
        "interface A",
        'node A @x("a" "b") {}',
        "node A @x('a') {}",
        "node A { x:: I32 }",
        "node A { x: I32 ?? }",
        "node A { 1x: I32 }",
    ],
)
def test_parse_text_outside_the_grammar_is_refused(text: str) -> None:
    assert all(found.startswith("parse error: ") for found in refusals(text))
