"""Query parser: every construct and every ambiguous one."""

from __future__ import annotations

import logging

import pytest
from lark import Lark, logger

from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq import query_parser
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.parser_tables import FOLDER
from omnigraph.lang.source import Source, Span
from omnigraph.lang.types import PropType, Scalar, vector
from tests.lang.query_reading import (
    clause,
    clauses,
    match_error,
    predicate,
    projection,
    query,
    read,
    statements,
    where,
)
from tests.strategies.queries import KEYWORDS

A, B, W = ast.Variable("a"), ast.Variable("b"), ast.Variable("w")
AX, BX = ast.PropertyAccess("a", "x"), ast.PropertyAccess("b", "x")
ONE = ast.Literal("integer", 1)


# --- the grammar -----------------------------------------------------------------------------------------


def conflicts(grammar: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the conflicts that lark resolves silently; it logs them in debug mode only."""
    before = logger.level, logger.propagate
    logger.setLevel(logging.DEBUG)
    logger.addHandler(caplog.handler)
    try:
        Lark(grammar, parser="lalr", lexer="contextual", debug=True)
    finally:
        logger.removeHandler(caplog.handler)
        logger.setLevel(before[0])
    return [record.getMessage() for record in caplog.records if "onflict" in record.getMessage()]


def test_query_grammar_has_no_conflicts(caplog: pytest.LogCaptureFixture) -> None:
    grammar = (FOLDER / "gq.lark").read_text(encoding="utf-8")
    assert conflicts(grammar, caplog) == []


def test_conflict_check_finds_a_planted_conflict(caplog: pytest.LogCaptureFixture) -> None:
    assert conflicts('start: a+\na: "x" "y"?  | "y"', caplog)


def test_parse_errors_have_a_name_for_every_terminal() -> None:
    terminals = {item.name for item in query_parser._parser().tables.terminals}
    assert terminals - set(query_parser.TERMINAL_NAMES) == {"WHITESPACE", "LINE_COMMENT", "BLOCK_COMMENT"}
    assert set(query_parser.TERMINAL_NAMES) - terminals == {"$END"}


# --- files, queries, parameters --------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " \n", "// nothing", "/* nothing */", "\ufeff"])
def test_parse_file_without_query_returns_empty_file(text: str) -> None:
    assert parse_queries(Source(text)) == ast.QueryFile()


def test_parse_queries_keeps_order_and_repeated_names() -> None:
    text = "query a() { delete T where x = 1 } query b() { delete T where x = 1 }"
    assert [item.name for item in parse_queries(Source(text + text)).queries] == ["a", "b", "a", "b"]


def test_parse_parameters_accepts_every_type() -> None:
    text = "$a: String, $b: [I64]?, $c: Vector(3), $d: Vector(3)?, $e: DateTime?"
    assert query(f"query q({text}) {{ delete T where x = $a }}").params == (
        ast.Param("a", PropType(Scalar.STRING)),
        ast.Param("b", PropType(Scalar.I64, nullable=True, is_list=True)),
        ast.Param("c", vector(3)),
        ast.Param("d", vector(3).optional),
        ast.Param("e", PropType(Scalar.DATETIME, nullable=True)),
    )


def test_parse_annotations_in_any_order() -> None:
    found = query('query q() @instruction("use") @description("what\\n") { delete T where x = 1 }')
    assert (found.description, found.instruction) == ("what\n", "use")


def test_parse_comments_between_any_two_tokens() -> None:
    text = "/**/query//\nq/* ( */()/**/{match{$a/**/:/**/T//}\n}return{$a/*.*/./*.*/x}}"
    assert query(text).body == read("$a: T", "return { $a.x }")


# --- clauses ---------------------------------------------------------------------------------------------


def test_parse_binding_with_inline_properties() -> None:
    found = clause('$a: T { x: 1, y: $p, z: now(), u: -0.5, v: date("2024-01-31"), }')
    assert found == ast.Binding(
        A,
        "T",
        (
            ast.InlineMatch("x", ONE),
            ast.InlineMatch("y", ast.Variable("p")),
            ast.InlineMatch("z", ast.Now()),
            ast.InlineMatch("u", ast.Literal("float", -0.5)),
            ast.InlineMatch("v", ast.Literal("date", "2024-01-31")),
        ),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$a knows $b", ast.Traversal(A, "knows", B)),
        ("$a <knows> $b", ast.Traversal(A, "knows", B, undirected=True)),
        ("$a < knows > $b", ast.Traversal(A, "knows", B, undirected=True)),
        ("$a $w:knows $b", ast.Traversal(A, "knows", B, edge_variable=W)),
        ("$a $w: <knows> $b", ast.Traversal(A, "knows", B, edge_variable=W, undirected=True)),
        ("$a knows{1,2} $b", ast.Traversal(A, "knows", B, min=1, max=2)),
        ("$a knows{2,} $b", ast.Traversal(A, "knows", B, min=2)),
        ("$a <knows> { 0 , 9 } $b", ast.Traversal(A, "knows", B, undirected=True, min=0, max=9)),
        ("$a knows $_", ast.Traversal(A, "knows", ast.Variable(ast.ANONYMOUS))),
    ],
)
def test_parse_traversal_accepts_every_form(text: str, expected: ast.Traversal) -> None:
    assert clause(text) == expected


def test_parse_negation_and_optional_nested() -> None:
    assert clause("not { $a knows $b optional { $b: T not { $b.x = 1 } } }") == ast.Negation(
        (
            ast.Traversal(A, "knows", B),
            ast.Optional(
                (ast.Binding(B, "T"), ast.Negation((ast.Filter(ast.Compare(BX, "=", ONE)),))),
            ),
        )
    )


@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">=", "contains", "starts_with"])
def test_parse_filter_accepts_every_comparison_operator(op: ast.CompareOp) -> None:
    assert predicate(f"$a.x {op} $b.x") == ast.Compare(AX, op, BX)
    assert predicate(f"$a.x {op} $b") == ast.Compare(AX, op, B)
    assert predicate(f"$a {op} $b.x") == ast.Compare(A, op, BX)
    assert predicate(f"$a {op} 1") == ast.Compare(A, op, ONE)
    assert predicate(f"1 {op} $a") == ast.Compare(ONE, op, A)


def test_parse_text_call_alone_is_a_filter() -> None:
    call = ast.TextCall("search", AX, ast.Variable("q"))
    assert clause("search($a.x, $q)") == ast.Filter(call)
    assert predicate("search($a.x, $q) = true") == ast.Compare(call, "=", ast.Literal("bool", True))
    assert predicate("fuzzy($a.x, $q, 2)") == ast.TextCall(
        "fuzzy", AX, ast.Variable("q"), ast.Literal("integer", 2)
    )


def test_parse_boolean_precedence_is_not_and_or() -> None:
    one, two, three = (ast.Compare(AX, "=", ast.Literal("integer", n)) for n in (1, 2, 3))
    assert predicate("$a.x = 1 or not $a.x = 2 and $a.x = 3") == ast.Or((one, ast.And((ast.Not(two), three))))
    assert predicate("($a.x = 1 or not $a.x = 2) and $a.x = 3") == ast.And(
        (ast.Or((one, ast.Not(two))), three)
    )
    assert predicate("not ($a.x = 1 and $a.x = 2)") == ast.Not(ast.And((one, two)))


def test_parse_chain_of_one_operator_is_flat() -> None:
    one = ast.Compare(AX, "=", ONE)
    assert predicate("$a.x = 1 and ($a.x = 1 and $a.x = 1) and (($a.x = 1))") == ast.And((one,) * 4)
    assert predicate("($a.x = 1 or ($a.x = 1)) or $a.x = 1") == ast.Or((one,) * 3)


def test_parse_membership_and_null_tests_negated() -> None:
    items = ast.Literal("list", (ONE, ast.Literal("integer", -2)))
    assert predicate("$a.x in [1, -2]") == ast.InList(AX, items)
    assert predicate("$a.x not in [1, -2]") == ast.InList(AX, items, negated=True)
    assert predicate("$a.x in $b") == ast.InList(AX, B)
    assert predicate("$a in [1, -2]") == ast.InList(A, items)
    assert predicate("$a in $b.x") == ast.InList(A, BX)
    assert predicate("$a.x is null") == ast.IsNull(AX)
    assert predicate("$a.x is not null") == ast.IsNull(AX, negated=True)
    assert predicate("$a is null") == ast.IsNull(A)
    assert predicate("not $a.x is not null") == ast.Not(ast.IsNull(AX, negated=True))


# --- two readings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["contains", "starts_with", "in", "is", "or", "and"])
def test_parse_word_between_two_variables_is_an_edge(word: str) -> None:
    assert clause(f"$a {word} $b") == ast.Traversal(A, word, B)
    assert clause(f"$a {word}{{1,2}} $b") == ast.Traversal(A, word, B, min=1, max=2)


@pytest.mark.parametrize("word", sorted(set(KEYWORDS) - {"not"}))
def test_parse_keyword_other_than_not_as_edge_name(word: str) -> None:
    assert clause(f"$a {word} $b") == ast.Traversal(A, word, B)
    assert clause(f"$a <{word}> $b") == ast.Traversal(A, word, B, undirected=True)
    assert clause(f"$a $w:{word} $b") == ast.Traversal(A, word, B, edge_variable=W)
    assert clause(f"$a $w:<{word}> $b") == ast.Traversal(A, word, B, edge_variable=W, undirected=True)


@pytest.mark.parametrize("text", ["$a <not> $b", "$a $w:not $b", "$a $w:<not> $b"])
def test_parse_not_as_edge_name_is_refused(text: str) -> None:
    assert match_error(text) == ("`not` cannot be used as an edge name", "not")


def test_parse_not_in_between_two_variables_is_a_filter() -> None:
    assert predicate("$a not in $b") == ast.InList(A, B, negated=True)


def test_parse_less_than_name_is_a_filter_unless_the_name_is_closed() -> None:
    assert predicate("$a < knows") == ast.Compare(A, "<", ast.AliasRef("knows"))
    assert clauses("$a < knows $b knows $a") == (
        ast.Filter(ast.Compare(A, "<", ast.AliasRef("knows"))),
        ast.Traversal(B, "knows", A),
    )


def test_parse_traversal_after_filter_ending_in_a_variable() -> None:
    test = ast.Filter(ast.Compare(AX, "=", B))
    assert clauses("$a.x = $b $a or $b") == (test, ast.Traversal(A, "or", B))
    assert clauses("$a.x = $b $a: T") == (test, ast.Binding(A, "T"))
    assert clauses("$a.x = $b $a $w:in $b") == (test, ast.Traversal(A, "in", B, edge_variable=W))
    assert clauses("$a.x = $b not { $a knows $b }") == (test, ast.Negation((ast.Traversal(A, "knows", B),)))


def test_parse_negation_after_text_call() -> None:
    call = ast.Filter(ast.TextCall("search", AX, ast.Literal("string", "q")))
    assert clauses('search($a.x, "q") not { $a: T }') == (call, ast.Negation((ast.Binding(A, "T"),)))


def test_parse_parenthesis_after_complete_filter_begins_another() -> None:
    one = ast.Compare(AX, "=", ONE)
    assert clauses("$a.x = 1 ($a.x = 1 or $a.x = 1)") == (ast.Filter(one), ast.Filter(ast.Or((one, one))))


@pytest.mark.parametrize("word", KEYWORDS)
def test_parse_keyword_as_any_name(word: str) -> None:
    body = f"match {{ ${word}: T {{ {word}: ${word} }} ${word}.{word} = 1 }}"
    tail = f"return {{ $a.x as {word}, ${word}.{word} }} order {{ ${word}.{word} desc }}"
    found = query(f"query {word}(${word}: String) {{ {body} {tail} }}")
    assert found.name == word
    assert found.params == (ast.Param(word, PropType(Scalar.STRING)),)
    assert isinstance(found.body, ast.ReadBody)
    assert found.body.projections == (
        ast.Projection(AX, word),
        ast.Projection(ast.PropertyAccess(word, word)),
    )
    (change,) = statements(f"update T set {{ {word}: 1 {word}: null }} where {word} = ${word}")
    null = ast.Literal("null", None)
    assert change == ast.Update(
        "T",
        (ast.Assign(word, ONE), ast.Assign(word, null)),
        ast.Compare(ast.ColumnName(word), "=", ast.Variable(word)),
    )


@pytest.mark.parametrize("word", sorted(set(KEYWORDS) - {"true", "false"}))
def test_parse_keyword_as_ordering_alias(word: str) -> None:
    found = read(tail=f"return {{ $a.x as {word} }} order {{ {word}, {word} desc }}")
    assert found.order == (
        ast.Ordering(ast.AliasRef(word)),
        ast.Ordering(ast.AliasRef(word), descending=True),
    )


@pytest.mark.parametrize("word", sorted(set(KEYWORDS) - {"true", "false", "as"}))
@pytest.mark.parametrize("value", ["1", "2.5", '"s"', "true", "[1]", 'date("d")', "now()", "$a", "$a.x", "n"])
def test_parse_keyword_after_value_without_comma(value: str, word: str) -> None:
    first, second = read(tail=f"return {{ {value} {word} }}").projections
    assert second == ast.Projection(ast.AliasRef(word))
    if isinstance(first.expr, ast.Literal | ast.Variable | ast.Now):
        (change,) = statements(f"insert T {{ x: {value} {word}: {value} }}")
        assert change == ast.Insert("T", (ast.Assign("x", first.expr), ast.Assign(word, first.expr)))


def test_parse_aggregate_of_alias_named_distinct() -> None:
    assert projection("count(distinct)").expr == ast.Aggregate("count", ast.AliasRef("distinct"))
    assert projection("count(distinct distinct)").expr == ast.Aggregate(
        "count", ast.AliasRef("distinct"), distinct=True
    )


# --- return, order, skip, limit --------------------------------------------------------------------------


def test_parse_projections_with_optional_commas() -> None:
    expected = (ast.Projection(AX), ast.Projection(B, "n"), ast.Projection(ast.AliasRef("count")))
    assert read(tail="return { $a.x $b as n count }").projections == expected
    assert read(tail="return { $a.x, $b as n, count, }").projections == expected


def test_parse_aggregates_with_distinct() -> None:
    assert projection("count($a)").expr == ast.Aggregate("count", A)
    assert projection("count(distinct $a.x)").expr == ast.Aggregate("count", AX, distinct=True)
    assert projection("collect($a.x)").expr == ast.Aggregate("collect", AX)
    assert projection("collect(distinct $a.x)").expr == ast.Aggregate("collect", AX, distinct=True)
    assert projection("avg($a.x) as mean") == ast.Projection(ast.Aggregate("avg", AX), "mean")


def test_parse_return_distinct() -> None:
    assert not read().distinct
    assert read(tail="return distinct { $a.x }").distinct


def test_parse_order_by_properties_aliases_and_rankings() -> None:
    nearest = ast.Nearest(AX, ast.Variable("q"))
    bm25 = ast.Bm25(AX, ast.Literal("string", "w"))
    text = 'return { $a } order { $a.x, n asc, nearest($a.x, $q), bm25($a.x, "w") desc, '
    found = read(tail=text + 'rrf(nearest($a.x, $q), bm25($a.x, "w"), 60) }')
    assert found.order == (
        ast.Ordering(AX),
        ast.Ordering(ast.AliasRef("n"), descending=False),
        ast.Ordering(nearest),
        ast.Ordering(bm25, descending=True),
        ast.Ordering(ast.Rrf((nearest, bm25), (None, None), ast.Literal("integer", 60))),
    )


@pytest.mark.parametrize("tail", ["skip 5 limit 10", "limit 10 skip 5"])
def test_parse_skip_and_limit_in_any_order(tail: str) -> None:
    found = read(tail=f"return {{ $a }} {tail}")
    assert (found.skip, found.limit) == (5, 10)


# --- literals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ('"a\\"\\\\\\n\\r\\t//é"', "string", 'a"\\\n\r\t//é'),
        ('"two\nlines"', "string", "two\nlines"),
        ("007", "integer", 7),
        ("-5", "integer", -5),
        ("-9223372036854775808", "integer", -(2**63)),
        ("18446744073709551615", "integer", 2**64 - 1),
        ("0.5", "float", 0.5),
        ("-0.5", "float", -0.5),
        ("true", "bool", True),
        ("false", "bool", False),
        ('date("2024-01-31")', "date", "2024-01-31"),
        ('datetime("2024-01-31T00:00:00Z")', "datetime", "2024-01-31T00:00:00Z"),
        ("[]", "list", ()),
        ("[-1, [1]]", "list", (ast.Literal("integer", -1), ast.Literal("list", (ONE,)))),
    ],
)
def test_parse_literal_returns_its_kind_and_value(text: str, kind: str, value: object) -> None:
    found = projection(text).expr
    assert isinstance(found, ast.Literal)
    assert (found.kind, found.value) == (kind, value)
    assert type(found.value) is type(value)


@pytest.mark.parametrize("number", ["18446744073709551616", "-9223372036854775809", "9" * 5000])
def test_parse_integer_out_of_range_is_refused_with_its_span(number: str) -> None:
    message, marked = match_error(f"$a.x = {number}")
    assert "is out of range" in message
    assert marked == number


def test_parse_float_not_finite_is_refused() -> None:
    assert "out of range" in match_error(f"$a.x = {'9' * 400}.0")[0]


@pytest.mark.parametrize("text", ["$a knows{-1,2} $b", "$a knows{1,-2} $b"])
def test_parse_negative_hop_bound_is_refused(text: str) -> None:
    assert "out of range" in match_error(text)[0]


def test_parse_unsupported_escape_is_refused_with_its_span() -> None:
    assert match_error('$a.x = "a\\q"') == ("unsupported escape sequence: \\q", "\\q")


# --- mutations -------------------------------------------------------------------------------------------


def test_parse_insert_update_and_delete_mixed() -> None:
    found = statements("insert T { x: 1, y: null } delete T where x = 1 update T set { x: $p } where x != $p")
    assert found == (
        ast.Insert("T", (ast.Assign("x", ONE), ast.Assign("y", ast.Literal("null", None)))),
        ast.Delete("T", ast.Compare(ast.ColumnName("x"), "=", ONE)),
        ast.Update(
            "T",
            (ast.Assign("x", ast.Variable("p")),),
            ast.Compare(ast.ColumnName("x"), "!=", ast.Variable("p")),
        ),
    )


def test_parse_assignments_with_optional_commas() -> None:
    assert statements("insert T { x: 1 y: now() }") == statements("insert T { x: 1, y: now(), }")


def test_parse_where_accepts_boolean_expressions_over_columns() -> None:
    text = 'age > 3 and (name in ["a"] or nick is null) and not city starts_with "x"'
    assert where(text) == ast.And(
        (
            ast.Compare(ast.ColumnName("age"), ">", ast.Literal("integer", 3)),
            ast.Or(
                (
                    ast.InList(ast.ColumnName("name"), ast.Literal("list", (ast.Literal("string", "a"),))),
                    ast.IsNull(ast.ColumnName("nick")),
                )
            ),
            ast.Not(ast.Compare(ast.ColumnName("city"), "starts_with", ast.Literal("string", "x"))),
        )
    )
    assert where("x not in $l or x is not null") == ast.Or(
        (
            ast.InList(ast.ColumnName("x"), ast.Variable("l"), negated=True),
            ast.IsNull(ast.ColumnName("x"), negated=True),
        )
    )


def test_parse_where_on_column_named_not() -> None:
    column = ast.Compare(ast.ColumnName("not"), "=", ONE)
    assert where("not = 1") == column
    assert where("not not = 1 and not in is null") == ast.And(
        (ast.Not(column), ast.Not(ast.IsNull(ast.ColumnName("in"))))
    )


# --- spans -----------------------------------------------------------------------------------------------


def test_parse_read_spans_cover_their_text() -> None:
    text = (
        "query find($p: [String]?) { match { $a : Person { name : $p , } $a $w : knows {1,2} $b "
        "not { $a . age >= -1 } ( $a.x in [ 1 ] ) or search($a.x, $p) } "
        "return { $a.x as n , count( $b ) , } order { n desc } }"
    )

    def piece(span: Span) -> str:
        return text[span.start : span.end]

    found = query(text)
    assert piece(found.span) == "find"
    assert piece(found.params[0].span) == "$p: [String]?"
    assert isinstance(found.body, ast.ReadBody)
    binding, traversal, negation, test = found.body.clauses
    assert isinstance(binding, ast.Binding)
    assert piece(binding.span) == "$a : Person { name : $p , }"
    assert piece(binding.variable.span) == "$a"
    assert piece(binding.type_span) == "Person"
    assert piece(binding.matches[0].span) == "name : $p"
    assert isinstance(traversal, ast.Traversal)
    assert traversal.edge_variable is not None
    assert piece(traversal.span) == "$a $w : knows {1,2} $b"
    assert [piece(item.span) for item in (traversal.source, traversal.edge_variable, traversal.target)] == [
        "$a", "$w", "$b",
    ]  # fmt: skip
    assert piece(traversal.edge_span) == "knows"
    assert isinstance(negation, ast.Negation)
    assert piece(negation.span) == "not { $a . age >= -1 }"
    assert isinstance(negation.clauses[0], ast.Filter)
    compare = negation.clauses[0].predicate
    assert isinstance(compare, ast.Compare)
    assert isinstance(compare.left, ast.PropertyAccess)
    assert piece(compare.span) == "$a . age >= -1"
    assert piece(compare.left.span) == "$a . age"
    assert piece(compare.left.name_span) == "age"
    assert piece(compare.right.span) == "-1"
    assert isinstance(test, ast.Filter)
    assert piece(test.span) == "( $a.x in [ 1 ] ) or search($a.x, $p)"
    assert isinstance(test.predicate, ast.Or)
    assert [piece(item.span) for item in test.predicate.items] == ["$a.x in [ 1 ]", "search($a.x, $p)"]
    assert [piece(item.span) for item in found.body.projections] == ["$a.x as n", "count( $b )"]
    assert [piece(item.span) for item in found.body.order] == ["n desc"]


def test_parse_mutation_spans_cover_their_text() -> None:
    text = "query q() { insert Person { x : 1 , y: null } update Firm set { x: 1 } where not x = $p }"
    body = query(text).body
    assert isinstance(body, ast.MutationBody)
    assert text[body.span.start : body.span.end] == text[12:-2]
    insert, update = body.statements
    assert isinstance(insert, ast.Insert)
    assert isinstance(update, ast.Update)
    assert text[insert.type_span.start : insert.type_span.end] == "Person"
    assert [text[item.span.start : item.span.end] for item in insert.assigns] == ["x : 1", "y: null"]
    assert text[update.type_span.start : update.type_span.end] == "Firm"
    assert text[update.where.span.start : update.where.span.end] == "not x = $p"
