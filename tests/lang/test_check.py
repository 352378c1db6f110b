"""Type checker: rules that the golden corpus does not cover."""

from __future__ import annotations

import pytest

from omnigraph.lang import ir
from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.check import check_query
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.lang.source import Source
from omnigraph.lang.types import I64, STRING, PropType, Scalar

SCHEMA = load_schema(
    """
    node Person {
      name: String @key
      age: I32?
      mood: enum(calm, sad)?
      tags: [String]?
      ratio: F32?
      vec: Vector(2)?
      file: Blob?
    }
    node Firm { name: String @key }
    edge Knows: Person -> Person { since: Date? }
    edge WorksAt: Person -> Firm
    """
)


def check(text: str) -> ir.CheckedQuery:
    source = Source(text, "q.gq")
    return check_query(parse_queries(source).queries[0], SCHEMA, source)


def read(match: str, tail: str = "return { 1 as one }", params: str = "") -> ir.ReadQuery:
    checked = check(f"query q({params}) {{ match {{ {match} }} {tail} }}")
    assert isinstance(checked, ir.ReadQuery)
    return checked


def mutation(body: str, params: str = "") -> ir.MutationQuery:
    checked = check(f"query q({params}) {{ {body} }}")
    assert isinstance(checked, ir.MutationQuery)
    return checked


def errors(match: str, tail: str = "return { 1 as one }", params: str = "") -> list[str | None]:
    with pytest.raises(LanguageError) as caught:
        read(match, tail, params)
    return [item.code for item in caught.value.diagnostics]


def marked(match: str, tail: str = "return { 1 as one }", params: str = "") -> list[str]:
    """Return the source text that each diagnostic marks."""
    text = f"query q({params}) {{ match {{ {match} }} {tail} }}"
    with pytest.raises(LanguageError) as caught:
        check(text)
    return [text[item.start : item.end] for item in caught.value.diagnostics]


def expand(query: ir.ReadQuery) -> ir.Expand:
    found = query.pattern[-1]
    assert isinstance(found, ir.Expand)
    return found


def predicate(query: ir.ReadQuery) -> ir.Predicate:
    found = query.pattern[-1]
    assert isinstance(found, ir.Filter)
    return found.predicate


# --- direction -------------------------------------------------------------------------------------------


def test_expand_with_both_ends_new_starts_on_the_left() -> None:
    scan, step = read("$a knows $b").pattern
    assert scan == ir.NodeScan("a", "Person", implicit=True)
    assert step == ir.Expand("a", "Knows", "out", "b", "Person")


def test_expand_with_only_right_end_bound_goes_backwards() -> None:
    step = expand(read("$b: Person  $a knows{1,2} $b"))
    assert step == ir.Expand("b", "Knows", "in", "a", "Person", 1, 2)


def test_expand_written_backwards_with_right_end_bound_goes_forwards() -> None:
    # The traversal is written against the edge and bound on the right, so that the expansion follows the edge.
    assert expand(read("$p: Person  $f worksAt $p")) == ir.Expand("p", "WorksAt", "out", "f", "Firm")


def test_expand_undirected_when_flipped_stays_undirected() -> None:
    assert expand(read("$b: Person  $a <knows> $b")).direction == "both"


def test_expand_inside_negation_infers_the_direction() -> None:
    step = read("$f: Firm  not { $f worksAt $p }").pattern[-1]
    assert step == ir.AntiJoin((ir.Expand("f", "WorksAt", "in", "p", "Person"),))


def test_edge_between_bound_ends_is_an_edge_check() -> None:
    assert expand(read("$a: Person  $b: Person  $a knows $b")).target_bound


def test_edge_check_with_edge_variable_keeps_it() -> None:
    step = expand(read("$a: Person  $b: Person  $a $w:knows $b"))
    assert step.target_bound
    assert step.edge_variable == "w"


def test_edge_with_same_variable_at_both_ends_is_scanned_once_and_checked() -> None:
    scan, step = read("$a knows $a").pattern
    assert scan == ir.NodeScan("a", "Person", implicit=True)
    assert step == ir.Expand("a", "Knows", "out", "a", "Person", target_bound=True)


def test_edge_between_types_with_same_variable_at_both_ends_is_refused() -> None:
    assert errors("$x worksAt $x") == ["T5"]
    assert errors("$x: Person  $x worksAt $x") == ["T5"]


def test_binding_after_traversal_adds_no_scan() -> None:
    *_, step = read('$a knows $b  $b: Person { name: "Bob" }').pattern
    assert isinstance(step, ir.NodeScan)
    assert step.bound


# --- names -----------------------------------------------------------------------------------------------


def test_anonymous_variables_are_distinct_nodes() -> None:
    query = read("$a: Person  $a knows $_  $_ knows $_")
    names = [step.target for step in query.pattern if isinstance(step, ir.Expand)]
    assert len(set(names)) == 2
    assert [item.name for item in query.variables] == ["a"]


def test_anonymous_variable_never_collides_with_a_named_one() -> None:
    # The generated name of an anonymous node starts with a character that no source name can start with.
    scan = read("$_: Person").pattern[0]
    assert isinstance(scan, ir.NodeScan)
    assert scan.variable[0].isdigit()


def test_anonymous_edge_variable_is_ignored() -> None:
    assert read("$a $_:knows{1,3} $b") == read("$a knows{1,3} $b")


def test_anonymous_variable_in_an_expression_is_refused() -> None:
    assert errors("$_: Person  $_.age > 3") == ["T6"]
    assert errors("$_: Person", "return { $_ }") == [None]


def test_variable_shadows_parameter_of_the_same_name() -> None:
    query = read("$x: Person", "return { $x }", "$x: String")
    assert query.outputs[0].expr == ir.EntityRef("x", "Person")


def test_inline_match_with_name_of_a_variable_reads_the_parameter() -> None:
    scan = read("$x: Person { name: $x }", params="$x: String").pattern[0]
    assert isinstance(scan, ir.NodeScan)
    assert scan.where == (ir.Compare("=", ir.PropertyRef("x", "name", STRING), ir.ParamRef("x", STRING)),)


def test_variable_bound_in_negation_may_be_bound_again_outside() -> None:
    read("$p: Person  not { $p worksAt $x }  $x: Person")


def test_negation_that_uses_only_a_parameter_is_refused() -> None:
    assert errors("$p: Person  not { $q: Person { name: $n } }", params="$n: String") == ["T9"]


def test_nested_negation_may_use_variable_of_the_outermost_pattern() -> None:
    read("$p: Person  not { $p knows $q  not { $r: Person  $r.age > $p.age } }")


def test_negation_whose_only_outer_use_is_in_a_nested_one_is_refused() -> None:
    # The outer block uses no outer variable; only the inner block uses a variable of the outer block.
    assert errors("$p: Person  not { $q: Firm  not { $x worksAt $q } }") == ["T9"]


# --- one mistake, one error ------------------------------------------------------------------------------


def test_variable_of_unknown_type_is_reported_once() -> None:
    tail = "return { $p, $p.name, count($p.age) as n } order { $p.age, n }"
    assert errors("$p: Persn  $p.age > 3  search($p.name, $p.x)", tail) == ["T1"]


def test_traversal_from_rejected_variable_reports_no_further_error() -> None:
    assert errors("$p: Persn  $p knows $q  $q $w:worksAt $f", "return { $q.x, $f.y, $w.z }") == ["T1"]


def test_variables_of_rejected_traversal_report_no_further_error() -> None:
    for clause in ("$p likes $q", "$p knows{0,1} $q", "$p $w:knows{1,2} $q", "$p <worksAt> $q"):
        assert len(errors(f"$p: Person  {clause}", "return { $q.age, $q }")) == 1


def test_rejected_variable_counts_as_use_in_a_negation() -> None:
    assert errors("$p: Persn  not { $p knows $x }") == ["T1"]


def test_rejected_variable_of_optional_reports_no_error_outside() -> None:
    assert errors("$p: Person  optional { $p likes $q }", "return { $q.age }") == ["T4"]


def test_rejected_variable_bound_again_reports_later_errors() -> None:
    assert errors("$p: Persn  $p: Person", "return { $p.nme }") == ["T1", "T6"]


def test_alias_of_rejected_projection_reports_no_further_error() -> None:
    assert errors("$p: Person", "return { sum($p.name) as s, s as t } order { s, t }") == ["T8"]


def test_alias_that_refers_to_itself_is_refused() -> None:
    assert errors("$p: Person", "return { total }") == ["T6"]


def test_comparison_reports_errors_of_both_operands() -> None:
    assert errors("$p: Person  $p.x = $q.y") == ["T6", "T6"]


# --- types -----------------------------------------------------------------------------------------------


def test_variable_of_optional_is_nullable_outside_only() -> None:
    query = read("$p: Person  optional { $p worksAt $f  $f.name > $p.name }", "return { $f, $f.name, $p }")
    inside = query.pattern[1]
    assert isinstance(inside, ir.OptionalMatch)
    assert inside.introduces == ("f",)
    assert inside.pattern[1] == ir.Filter(
        ir.Compare(">", ir.PropertyRef("f", "name", STRING), ir.PropertyRef("p", "name", STRING))
    )
    assert [item.type.nullable for item in query.outputs] == [True, True, False]
    assert ir.Variable("f", "node", "Firm", nullable=True) in query.variables


def test_edge_variable_of_optional_is_nullable() -> None:
    query = read("$p: Person  optional { $p $w:knows $q }", "return { $w.since }")
    assert ir.Variable("w", "edge", "Knows", nullable=True) in query.variables


@pytest.mark.parametrize(
    ("match", "params"),
    [
        ("$p: Person  $p.mood = $m", "$m: String"),
        ("$p: Person  $m != $p.mood", "$m: String?"),
        ("$p: Person { mood: $m }", "$m: String"),
        ("$p: Person  $p.mood in $m", "$m: [String]"),
    ],
)
def test_parameter_compared_with_enum_has_its_values(match: str, params: str) -> None:
    query = read(match, params=params)
    assert "enum_values=('calm', 'sad')" in repr(query.pattern)
    # The declared parameter keeps its declared type.
    assert query.params[0].type.enum_values is None


def test_ordered_comparison_with_enum_accepts_any_text() -> None:
    found = predicate(read('$p: Person  $p.mood < "m"'))
    assert isinstance(found, ir.Compare)


def test_parameter_assigned_to_enum_has_its_values() -> None:
    (statement,) = mutation("update Person set { mood: $m } where mood = $m", "$m: String").statements
    assert isinstance(statement, ir.UpdateNode)
    assert statement.assigns[0].value.type.enum_values == ("calm", "sad")


def test_inline_match_of_list_property_is_membership() -> None:
    scan = read('$p: Person { tags: "a" }').pattern[0]
    tags = ir.PropertyRef("p", "tags", PropType(Scalar.STRING, nullable=True, is_list=True))
    assert isinstance(scan, ir.NodeScan)
    assert scan.where == (ir.ListContains(tags, ir.Const("a", STRING)),)


def test_integer_literal_assigned_to_float_property_becomes_float() -> None:
    (statement,) = mutation('insert Person { name: "a", ratio: 1, vec: [0, 1] }').statements
    assert isinstance(statement, ir.InsertNode)
    values = [assign.value for assign in statement.assigns if isinstance(assign.value, ir.Const)]
    assert [repr(item.value) for item in values] == ["'a'", "1.0", "(0.0, 1.0)"]


def test_integer_literal_beyond_i64_is_u64() -> None:
    found = predicate(read("$p: Person  $p.age < 9223372036854775808"))
    assert isinstance(found, ir.Compare)
    assert found.right.type.scalar is Scalar.U64


@pytest.mark.parametrize(
    ("written", "scalar", "values"),
    [
        ("[1, 2]", Scalar.I64, (1, 2)),
        ("[1, 18446744073709551615]", Scalar.U64, (1, 2**64 - 1)),
        ("[1, 2.5]", Scalar.F64, (1.0, 2.5)),
        ("[-1, 18446744073709551615]", Scalar.F64, (-1.0, float(2**64 - 1))),
    ],
)
def test_list_literal_of_mixed_numbers_has_one_type(
    written: str, scalar: Scalar, values: tuple[float, ...]
) -> None:
    found = predicate(read(f"$p: Person  $p.age in {written}"))
    assert isinstance(found, ir.InSet)
    assert isinstance(found.items, ir.Const)
    assert found.items == ir.Const(values, PropType(scalar, is_list=True))
    assert isinstance(found.items.value, tuple)
    assert [type(item) for item in found.items.value] == [type(item) for item in values]


def test_score_and_match_of_nullable_operand_are_nullable() -> None:
    query = read(
        "$p: Person",
        "return { nearest($p.vec, [0, 1]) as a, bm25($p.name, $q) as b, search($p.name, $n) as c }",
        "$q: String, $n: String?",
    )
    assert [str(item.type) for item in query.outputs] == ["F64?", "F64", "Bool?"]


def test_count_of_node_is_not_nullable() -> None:
    (output,) = read("$p: Person", "return { count($p) as n }").outputs
    assert output.expr == ir.Aggregate("count", ir.EntityRef("p", "Person"), False, I64)


# --- order -----------------------------------------------------------------------------------------------


def test_order_by_score_ignores_the_direction() -> None:
    for direction in ("", "asc", "desc"):
        query = read("$p: Person", f'return {{ $p.name }} order {{ bm25($p.name, "x") {direction} }}')
        assert [item.descending for item in query.order] == [True]


def test_order_by_alias_of_list_is_refused() -> None:
    assert errors("$p: Person", "return { $p.tags as t } order { t }") == ["T7"]
    assert errors("$p: Person", "return distinct { $p.tags } order { $p.tags }") == ["T7"]
    assert errors("$p: Person", "return { collect($p.name) as names } order { names }") == ["T7"]


def test_order_of_distinct_rows_by_ranking_is_refused() -> None:
    score = 'bm25($p.name, "x")'
    assert errors("$p: Person", f"return distinct {{ {score} as s }} order {{ {score} }}") == ["T25"]
    read("$p: Person", f"return distinct {{ {score} as s }} order {{ s desc }}")


def test_order_of_distinct_rows_by_returned_property_uses_its_column() -> None:
    query = read("$p: Person", "return distinct { $p.age as years } order { $p.age }")
    assert query.order == (ir.Order(ir.OutputRef("years", PropType(Scalar.I32, nullable=True))),)


def test_rrf_of_nearest_and_alias_is_accepted() -> None:
    rank = 'rrf(nearest($p.vec, [0, 1]), bm25($p.name, "x"))'
    read("$p: Person", f"return {{ $p.name as n }} order {{ {rank}, n }} limit 3")


# --- mutations -------------------------------------------------------------------------------------------


def test_mutation_reports_errors_of_every_statement() -> None:
    with pytest.raises(LanguageError) as caught:
        mutation('insert Persn { name: "a" } delete Person where nme = $x')
    assert [item.code for item in caught.value.diagnostics] == ["T10", "T11", "T14"]


def test_update_reports_errors_of_assignments_and_predicate() -> None:
    with pytest.raises(LanguageError) as caught:
        mutation('update Person set { age: "x", name: "y" } where agee = 3')
    assert [item.code for item in caught.value.diagnostics] == ["T3", None, "T11"]


def test_delete_lists_every_incident_edge_type_once() -> None:
    (statement,) = mutation('delete Person where name = "a"').statements
    assert isinstance(statement, ir.DeleteNode)
    assert statement.cascades == ("Knows", "WorksAt")


def test_insert_without_assignments_in_a_built_query_is_refused() -> None:
    # The grammar requires an assignment, so that only a hand-built AST can be without one.
    body = ast.MutationBody((ast.Insert("Person", ()),))
    with pytest.raises(LanguageError) as caught:
        check_query(ast.Query("q", (), body), SCHEMA, Source(""))
    assert [item.code for item in caught.value.diagnostics] == ["T10", "T12"]


def test_where_with_unsupported_expression_is_refused() -> None:
    where = ast.Compare(ast.PropertyAccess("p", "name"), "=", ast.Literal("string", "a"))
    body = ast.MutationBody((ast.Delete("Person", where),))
    with pytest.raises(LanguageError) as caught:
        check_query(ast.Query("q", (), body), SCHEMA, Source(""))
    assert [item.code for item in caught.value.diagnostics] == ["T11"]


def test_comparison_with_null_in_a_built_query_is_refused() -> None:
    where = ast.Compare(ast.ColumnName("name"), "=", ast.Literal("null", None))
    body = ast.MutationBody((ast.Delete("Person", where),))
    with pytest.raises(LanguageError) as caught:
        check_query(ast.Query("q", (), body), SCHEMA, Source(""))
    assert [item.code for item in caught.value.diagnostics] == ["T3"]


# --- places ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("match", "tail", "span"),
    [
        ("$p: Persn", "return { 1 as x }", "Persn"),
        ("$p: Person { age: true }", "return { 1 as x }", "true"),
        ("$p: Person  $p likes $q", "return { 1 as x }", "likes"),
        ("$f: Firm  $f knows $q", "return { 1 as x }", "$f"),
        ("$p: Person", "return { $p.nme as x }", "nme"),
        ("$p: Person", "return { sum($p.name) as x }", "$p.name"),
        ("$p: Person", "return { $p.file as x }", "$p.file"),
        ("$p: Person", "return { $p.name } order { $p.tags desc }", "$p.tags"),
        ("$p: Person", "return distinct { $p.name } order { $p.age desc }", "$p.age"),
        ("$p: Person  $p <worksAt> $f", "return { 1 as x }", "worksAt"),
        ("$a $w:knows $b  $w knows $a", "return { 1 as x }", "$w"),
    ],
)
def test_diagnostic_span_covers_the_wrong_part(match: str, tail: str, span: str) -> None:
    assert marked(match, tail) == [span]
