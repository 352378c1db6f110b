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


def test_an_empty_text_declares_nothing() -> None:
    assert parse("") == parse(" \t\r\n// x\n/* y */") == SchemaFile()


def test_declarations_keep_their_order() -> None:
    found = parse("edge B: A -> A node A {} interface C {}").declarations
    assert [type(item) for item in found] == [EdgeDecl, NodeDecl, InterfaceDecl]


@pytest.mark.parametrize(
    "name", ["node", "edge", "interface", "implements", "enum", "true", "false", "key", "card", "_", "_1aB"]
)
def test_a_property_may_be_called(name: str) -> None:
    text = f"interface I {{ {name}: String }} node A {{ {name}: String @key }}"
    interface, found = parse(text).declarations
    assert isinstance(interface, InterfaceDecl)
    assert isinstance(found, NodeDecl)
    assert interface.properties == (PropertyDecl(name, STRING),)
    assert found.members == (PropertyDecl(name, STRING, (AnnotationDecl("key"),)),)


@pytest.mark.parametrize("before", ["@x", "@key", "@x(1)", "@x(y)", "@unique(y)", "? ", "@x @range(y, ..1)"])
@pytest.mark.parametrize("name", ["node", "edge", "interface", "implements", "enum", "true", "card"])
def test_a_property_may_be_called_like_a_keyword_after_anything(name: str, before: str) -> None:
    (found,) = parse(f"node A {{ y: I32 {before} {name}: String }}").declarations
    assert isinstance(found, NodeDecl)
    assert found.members[-1] == PropertyDecl(name, STRING)


@pytest.mark.parametrize("name", ["node", "edge", "interface", "implements", "enum", "key", "unique", "card"])
def test_a_keyword_may_be_an_argument(name: str) -> None:
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
def test_a_keyword_ends_where_the_word_ends(text: str) -> None:
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
def test_a_type_is_read(text: str, expected: PropType) -> None:
    assert node(f"node A {{ x: {text} }}").members == (PropertyDecl("x", expected),)


@pytest.mark.parametrize("name", ["key", "unique", "index", "range", "check"])
def test_a_constraint_name_with_a_parenthesis_is_always_a_body_constraint(name: str) -> None:
    assert node(f"node A {{ value: String @{name}(value) }}").members == (
        PropertyDecl("value", STRING),
        BodyConstraint(name, (Name("value"),)),
    )


@pytest.mark.parametrize("between", ["", " ", "\n", " /* x */ ", "// x\n"])
def test_a_constraint_is_one_however_its_parts_are_separated(between: str) -> None:
    found = node(f"node A {{ x: String @{between}key{between}(x) }}")
    assert found.members[1] == BodyConstraint("key", (Name("x"),))


def test_a_constraint_name_without_a_parenthesis_annotates_the_property_before_it() -> None:
    found = node("node A { x: String @unique @index y: I32 @key }")
    assert found.members == (
        PropertyDecl("x", STRING, (AnnotationDecl("unique"), AnnotationDecl("index"))),
        PropertyDecl("y", PropType(Scalar.I32), (AnnotationDecl("key"),)),
    )


def test_a_longer_name_is_no_constraint() -> None:
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
def test_bounds_are_read(text: str, bounds: Bounds) -> None:
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
def test_an_annotation_takes_any_literal_or_a_name(text: str, value: str | float | Name) -> None:
    (found,) = node(f"node A @note({text}, k={'1' if isinstance(value, Name) else text}) {{}}").annotations
    expected = 1 if isinstance(value, Name) else value
    assert found == AnnotationDecl("note", value, (("k", expected),))
    assert type(found.value) is type(value)


def test_an_edge_header_has_cardinality_then_annotations() -> None:
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


def test_a_cardinality_may_be_open_and_an_edge_body_left_out() -> None:
    assert edge("edge E: A -> B @card(2..)") == edge("edge E:A->B@card(2 ..){}")
    assert edge("edge E: A -> B @card(2..)").card == CardDecl(2, None)


@pytest.mark.parametrize("place", ["node A @card {}", "node A @card(1) {}"])
def test_card_is_an_ordinary_annotation_elsewhere(place: str) -> None:
    assert node(place).annotations[0].name == "card"


def test_a_node_lists_its_interfaces() -> None:
    assert node("node A @x implements B, C {}") == NodeDecl(
        "A", (AnnotationDecl("x"),), (Name("B"), Name("C"))
    )


def test_a_byte_order_mark_at_the_start_is_passed_over() -> None:
    assert parse("\ufeffnode A {}") == parse("node A {}")
    assert refusals("node A {} \ufeff")


def test_spans_point_at_names_types_and_constraints() -> None:
    text = "node Ab { cd: [I32]? @key @unique(cd) }"
    found = node(text)
    prop, constraint = found.members
    assert isinstance(prop, PropertyDecl)

    def at(span: Span) -> str:
        return text[span.start : span.end]

    assert [at(found.span), at(prop.span), at(prop.type_span)] == ["Ab", "cd", "[I32]?"]
    assert [at(prop.annotations[0].span), at(constraint.span)] == ["@key", "@unique(cd)"]


# --- what is refused -------------------------------------------------------------------------------------


def test_every_broken_declaration_is_reported_once() -> None:
    text = "node A { x }\nnode B { x: I32 }\nedge C: A\nnode D { y: }\ninterface E { @x }"
    with pytest.raises(LanguageError) as caught:
        parse(text)
    assert [item.line for item in caught.value.diagnostics] == [1, 3, 4, 5]


def test_a_missing_brace_does_not_hide_the_next_declaration() -> None:
    with pytest.raises(LanguageError) as caught:
        parse("node A {\n  x: I32\n\nnode B {\n  y: }\n")
    first, second = caught.value.diagnostics
    assert "unexpected end of the declaration" in first.text
    assert (first.line, first.column, second.line) == (2, 9, 5)


def test_a_property_called_node_does_not_look_like_a_declaration_to_recovery() -> None:
    with pytest.raises(LanguageError) as caught:
        parse("node A {\n  node: String\n  edge: String\n  x y\n}\nnode B {}")
    assert [item.line for item in caught.value.diagnostics] == [4]


def test_wrong_escapes_and_syntax_errors_are_reported_together() -> None:
    found = refusals('node A @description("\\q") {}\nnode B { x }\nnode C { y: Strin }')
    assert len(found) == 3
    assert found[0] == r"parse error: unsupported escape sequence: \q"
    assert found[2] == "parse error: unknown type: Strin"


def test_a_span_counts_bytes() -> None:
    with pytest.raises(LanguageError) as caught:
        parse('node A @x("é") { ! }')
    assert caught.value.details["diagnostics"][0]["span"] == {"start": 18, "end": 19}


def test_the_number_of_reported_errors_is_bounded() -> None:
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
def test_hostile_text_gives_a_language_error(case: str) -> None:
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
def test_what_the_grammar_does_not_know_is_refused(text: str) -> None:
    assert all(found.startswith("parse error: ") for found in refusals(text))
