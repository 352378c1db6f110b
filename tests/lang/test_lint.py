"""Linter: report, findings and operation descriptors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omnigraph.lang.gq.lint_rules import LintReport, lint_queries
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.lang.source import Source

SCHEMA = load_schema(
    """
    node Person {
      name: String @key
      age: I32?
      born: Date?
      big: U64?
      tags: [String]?
      mood: enum(calm, sad)?
      vec: Vector(4)? @embed(name)
      required: String
    }
    node Firm { name: String @key  size: I32? }
    edge Knows: Person -> Person { since: Date? }
    edge WorksAt: Person -> Firm
    """
)
FILE = {"kind": "file", "path": "s.pg"}
READ = "query all() { match { $p: Person } return { $p.name } }"
UPDATE = "query age($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
DELETE = 'query gone() { delete Person where name = "a" }'


def lint(text: str) -> LintReport:
    return lint_queries(Source(text, "q.gq"), SCHEMA)


def report(text: str) -> dict[str, Any]:
    return lint(text).to_json(FILE)


def operation(text: str) -> dict[str, Any]:
    (result,) = report(text)["results"]
    found: dict[str, Any] = result["operation"]
    return found


def columns(returned: str, match: str = "$p: Person", params: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = operation(
        f"query q({params}) {{ match {{ {match} }} return {{ {returned} }} }}"
    )["result"]
    return found


def entities(found: list[dict[str, str]]) -> list[str]:
    return [f"{item['kind']}:{item['type_name']}" for item in found]


# --- the report ------------------------------------------------------------------------------------------


def test_lint_report_has_the_documented_keys_in_order() -> None:
    expected = {
        "status": "ok",
        "schema_source": {"kind": "file", "path": "s.pg"},
        "query_path": "q.gq",
        "queries_processed": 2,
        "errors": 0,
        "warnings": 1,
        "infos": 0,
        "results": [
            {
                "name": "all",
                "kind": "read",
                "status": "ok",
                "warnings": [],
                "operation": {
                    "result": [{"name": "name", "kind": "string", "nullable": False}],
                    "reads": [{"kind": "node", "type_name": "Person"}],
                    "writes": [],
                },
            },
            {
                "name": "hire",
                "kind": "mutation",
                "status": "ok",
                "warnings": ["mutation declares no params; hardcoded mutations are easy to miss"],
                "operation": {
                    "result": [],
                    "reads": [
                        {"kind": "node", "type_name": "Firm"},
                        {"kind": "node", "type_name": "Person"},
                        {"kind": "edge", "type_name": "WorksAt"},
                    ],
                    "writes": [{"kind": "edge", "type_name": "WorksAt"}],
                },
            },
        ],
        "findings": [],
    }
    found = report(f'{READ} query hire() {{ insert WorksAt {{ from: "a", to: "b" }} }}')
    assert json.dumps(found) == json.dumps(expected)


def test_lint_report_contains_the_given_schema_source() -> None:
    graph = {"kind": "graph", "uri": "g"}
    assert lint(READ).to_json(graph)["schema_source"] == graph


def test_lint_of_empty_file_is_ok() -> None:
    found = report("// nothing yet")
    assert (found["status"], found["queries_processed"], found["results"], found["findings"]) == (
        "ok",
        0,
        [],
        [],
    )


def test_lint_type_error_is_reported_for_its_query_only() -> None:
    found = report(f"query bad() {{ match {{ $p: Persn }} return {{ $p.x }} }} {READ}")
    bad, good = found["results"]
    assert (found["status"], found["errors"], found["queries_processed"]) == ("error", 1, 2)
    assert bad["status"] == "error"
    assert bad["error"] == "type error: T1: unknown node type `Persn`; did you mean `Person`?"
    assert "operation" not in bad
    assert good["status"] == "ok"
    assert "error" not in good


def test_lint_query_with_several_errors_reports_all_diagnostics() -> None:
    text = "query bad() { match { $p: Person } return { $p.x, $p.y } }"
    (result,) = report(text)["results"]
    assert result["error"] == "type error: T6: node type `Person` has no property `x`"
    assert [item["code"] for item in result["diagnostics"]] == ["T6", "T6"]
    assert [item["line"] for item in result["diagnostics"]] == [1, 1]
    # A query with several errors counts as one error.
    assert report(text)["errors"] == 1


def test_lint_of_unparsable_file_reports_q000_for_each_error() -> None:
    found = report("query a() { mtach } \n query b() { match { $p: Person } retrn { $p.name } }")
    assert (found["status"], found["queries_processed"], found["results"]) == ("error", 0, [])
    assert found["errors"] == 2
    assert [(item["severity"], item["code"]) for item in found["findings"]] == [("error", "Q000")] * 2
    assert all(item["message"].startswith("parse error: ") for item in found["findings"])
    assert [item["diagnostic"]["line"] for item in found["findings"]] == [1, 2]


def test_lint_report_without_error_is_ok() -> None:
    assert lint(READ).ok
    assert lint(DELETE).ok
    assert not lint("query").ok
    assert not lint("query a() { delete Persn where x = 1 }").ok


# --- warnings --------------------------------------------------------------------------------------------


def test_lint_mutation_without_parameters_has_a_warning() -> None:
    found = report(DELETE)
    assert found["warnings"] == 1
    assert found["results"][0]["warnings"] == [
        "mutation declares no params; hardcoded mutations are easy to miss"
    ]


def test_lint_mutation_with_error_has_a_warning() -> None:
    (result,) = report("query q() { delete Persn where x = 1 }")["results"]
    assert result["status"] == "error"
    assert len(result["warnings"]) == 1


def test_lint_mutation_with_parameters_and_read_have_no_warning() -> None:
    found = report(f"query gone($n: String) {{ delete Person where name = $n }} {READ}")
    assert found["warnings"] == 0


def test_lint_l201_reports_each_nullable_property_without_update() -> None:
    found = report(UPDATE)["findings"]
    assert found[0] == {
        "severity": "warning",
        "code": "L201",
        "message": "Person.big exists in schema but no update query sets it",
        "type_name": "Person",
        "property": "big",
        "query_names": ["age"],
    }
    # Keys, embeddings, required properties and properties that are set are not reported.
    assert [item["property"] for item in found] == ["big", "born", "mood", "tags"]
    assert report(UPDATE)["warnings"] == 4


def test_lint_l201_considers_the_updates_of_all_queries() -> None:
    other = "query rest($n: String) { update Person set { big: 1 born: null } where name = $n }"
    found = report(f"{UPDATE} {other}")["findings"]
    assert [item["property"] for item in found] == ["mood", "tags"]
    assert {tuple(item["query_names"]) for item in found} == {("age", "rest")}


def test_lint_l201_ignores_types_without_update() -> None:
    assert report(READ)["findings"] == []
    assert report(DELETE)["findings"] == []
    assert report("query add($n: String) { insert Firm { name: $n } }")["findings"] == []
    assert {item["type_name"] for item in report(UPDATE)["findings"]} == {"Person"}


def test_lint_l201_ignores_edges_and_unknown_types() -> None:
    assert report("query q($d: Date) { update Knows set { since: $d } where since = $d }")["findings"] == []
    assert report("query q($d: Date) { update Nothing set { since: $d } where since = $d }")["findings"] == []


def test_lint_of_file_with_warnings_is_ok() -> None:
    assert report(UPDATE)["status"] == "ok"


# --- the operation descriptor ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("$p.name", {"name": "name", "kind": "string", "nullable": False}),
        ("$p.name as n", {"name": "n", "kind": "string", "nullable": False}),
        ("$p", {"name": "p", "kind": "object", "nullable": False}),
        ("$p.age", {"name": "age", "kind": "int", "nullable": True}),
        ("$p.big", {"name": "big", "kind": "bigint", "nullable": True}),
        ("$p.born", {"name": "born", "kind": "date", "nullable": True}),
        ("$p.mood", {"name": "mood", "kind": "string", "nullable": True}),
        ("$p.tags", {"name": "tags", "kind": "list", "item_kind": "string", "nullable": True}),
        ("$p.vec", {"name": "vec", "kind": "vector", "vector_dim": 4, "nullable": True}),
        ("1", {"name": "literal", "kind": "bigint", "nullable": False}),
        ("1.5", {"name": "literal", "kind": "float", "nullable": False}),
        ("true as yes", {"name": "yes", "kind": "bool", "nullable": False}),
        ("now() as at", {"name": "at", "kind": "datetime", "nullable": False}),
        ("[1, 2]", {"name": "literal", "kind": "list", "item_kind": "bigint", "nullable": False}),
        ("count($p)", {"name": "p", "kind": "bigint", "nullable": False}),
        ("sum($p.age)", {"name": "age", "kind": "float", "nullable": True}),
        ("min($p.age) as lo", {"name": "lo", "kind": "int", "nullable": True}),
        ("collect($p.age) as ages", {"name": "ages", "kind": "list", "item_kind": "int", "nullable": False}),
    ],
)
def test_describe_column_returns_bare_name_and_kind(returned: str, expected: dict[str, Any]) -> None:
    (found,) = columns(returned)
    assert json.dumps(found) == json.dumps(expected)


def test_describe_entity_column_is_one_object() -> None:
    found = columns("$p, $f.* as firm, $f.*", "$p: Person  optional { $p worksAt $f }")
    assert found[1:3] == [
        {"name": "firm", "kind": "object", "nullable": True},
        {"name": "name", "kind": "string", "nullable": True},
    ]
    assert len(found) == 4


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("String", "string"),
        ("Bool", "bool"),
        ("I32", "int"),
        ("U32", "int"),
        ("I64", "bigint"),
        ("U64", "bigint"),
        ("F32", "float"),
        ("F64", "float"),
        ("Date", "date"),
        ("DateTime", "datetime"),
        ("Vector(3)", "vector"),
        ("[Date]", "list"),
    ],
)
def test_describe_column_of_every_type_has_a_kind(declared: str, kind: str) -> None:
    (found,) = columns("$x", params=f"$x: {declared}?")
    assert (found["name"], found["kind"], found["nullable"]) == ("x", kind, True)


def test_describe_column_of_optional_binding_is_nullable() -> None:
    found = columns("$f, $f.name", match="$p: Person  optional { $p worksAt $f }")
    assert [item["nullable"] for item in found] == [True, True]


def test_describe_read_lists_the_types_of_its_whole_pattern() -> None:
    found = operation(
        "query q() { match { $p: Person  not { $p knows $q }  optional { $q2 worksAt $f } } return { $p } }"
    )
    assert entities(found["reads"]) == ["node:Firm", "node:Person", "edge:Knows", "edge:WorksAt"]
    assert found["writes"] == []


@pytest.mark.parametrize(
    ("body", "reads", "writes"),
    [
        ('insert Firm { name: "a" }', ["node:Firm"], ["node:Firm"]),
        ('update Firm set { size: 1 } where name = "a"', ["node:Firm"], ["node:Firm"]),
        (
            'insert Knows { from: "a", to: "b" }',
            ["node:Person", "edge:Knows"],
            ["edge:Knows"],
        ),
        ('delete Knows where from = "a"', ["edge:Knows"], ["edge:Knows"]),
        (
            'delete Firm where name = "a"',
            ["node:Firm", "edge:WorksAt"],
            ["node:Firm", "edge:WorksAt"],
        ),
        (
            'insert Firm { name: "a" } delete Person where name = "a"',
            ["node:Firm", "node:Person", "edge:Knows", "edge:WorksAt"],
            ["node:Firm", "node:Person", "edge:Knows", "edge:WorksAt"],
        ),
    ],
)
def test_describe_mutation_lists_types_read_and_written(
    body: str, reads: list[str], writes: list[str]
) -> None:
    found = operation(f"query q() {{ {body} }}")
    assert found["result"] == []
    assert entities(found["reads"]) == reads
    assert entities(found["writes"]) == writes
