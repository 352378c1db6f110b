"""A pipeline file is checked before anything runs, and errors name the line and the key."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

import omnigraph as og
from omnigraph import pipelines
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.pipelines.definition import EdgeTarget, FailedRows, fails_run
from omnigraph.pipelines.pipeline_file import read_pipeline
from omnigraph.pipelines.variables import Secrets

SHOP = Path(__file__).parents[2] / "examples" / "shop" / "pipeline.yaml"
BASE = """
graph: shop.omni
sources:
  customers: {format: csv, path: in/*.csv}
views:
  cust: select id from customers
nodes:
  Customer: {from: cust}
""".lstrip()


def error_of(tmp_path: Path, text: str, **variables: str) -> str:
    path = tmp_path / "p.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput) as raised:
        read_pipeline(path, variables)
    return str(raised.value).removeprefix(f"{path}: ")


def test_example_is_valid() -> None:
    pipeline = read_pipeline(SHOP, {"SHOP_DB": "jdbc:derby:x"})
    assert pipeline.name == "shop"
    assert pipeline.inputs["placements"] == {"orders"}
    assert pipeline.used_sources == {"customers", "orders", "lines", "products"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("from: cust", "form: cust", "line 7: nodes.Customer.from: this key is missing"),
        ("path: in/*.csv", "paht: x", "line 3: sources.customers.path: this key is missing"),
        ("{from: cust}", "{from: cust, modus: x}", "line 7: nodes.Customer.modus: unknown key"),
        (
            "{from: cust}",
            "{from: cust, mode: insert}",
            "line 7: nodes.Customer.mode: expected 'append', 'merge'",
        ),
        (
            "from: cust",
            "from: custs",
            "line 7: nodes.Customer.from: unknown source or view 'custs'; did you mean",
        ),
        ("from customers", "from customer", "line 5: views.cust: unknown source or view 'customer'"),
        ("select id from customers", "selec id", "line 5: views.cust: "),
        ("select id from customers", "drop table customers", "line 5: views.cust: expected a query"),
        ("select id from customers", "select id from cust", "line 5: views.cust: the view reads itself"),
        (
            "format: csv",
            "format: cvs",
            "line 3: sources.customers: unknown format 'cvs'\nhint: did you mean `csv`?",
        ),
        ("{format: csv, path: in/*.csv}", "in/*.csv", "line 3: sources.customers: expected a mapping"),
        (
            "{format: csv, path: in/*.csv}",
            "{format: jdbc, url: x}",
            "line 3: sources.customers: expected one of",
        ),
        (
            "{from: cust}",
            "{from: cust, dedup: {keys: []}}",
            "line 7: nodes.Customer.dedup.keys: expected at least",
        ),
        (
            "{from: cust}",
            "{from: cust, on_orphan: fail}",
            "line 7: nodes.Customer.on_orphan: unknown key\nhint: `on_orphan` is a key of an edge",
        ),
        ("{from: cust}", "{from: 5}", "line 7: nodes.Customer.from: expected text\nhint: put it in quotes"),
        (
            "from customers",
            "from customers where",
            "line 5: views.cust: invalid SQL near `id from customers where`",
        ),
        (
            "{from: cust}",
            "{from: cust}\n  City: {from: customers, mode: append}",
            "line 8: nodes.City.mode: a run is one load, which cannot append this type and merge 'Customer'",
        ),
        (
            "{from: cust}",
            "{from: cust, mode: append, delete_when: id is null}",
            "line 7: nodes.Customer.delete_when: the mode append deletes no single rows",
        ),
        (
            "{from: cust}",
            "{from: cust, delete_when: id =}",
            "line 7: nodes.Customer.delete_when: invalid SQL near `id =`",
        ),
        (
            "{from: cust}",
            "{from: cust, order_by: id, dedup: {keys: [id]}}",
            "line 7: nodes.Customer.order_by: use one of `order_by` and `dedup`",
        ),
        (
            "{from: cust}",
            "{from: cust}\nquarantine: {path: q, max: 120%}",
            "line 8: quarantine.max: expected a number of rows, or a percentage such as 0.5%",
        ),
        (
            "path: in/*.csv",
            "path: '${NOPE}'",
            "line 3: sources.customers.path: the environment variable NOPE",
        ),
        (
            "{from: cust}",
            "{from: cust, on_fail: quarantine}",
            "line 7: nodes.Customer.on_fail: the file has no",
        ),
        ("{from: cust}", "{from: cust, expect: {a: 'id >'}}", "line 7: nodes.Customer.expect.a: invalid SQL"),
    ],
)
def test_mistake_is_reported_with_line_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in BASE
    assert error_of(tmp_path, BASE.replace(old, new)).startswith(message)


def test_jdbc_lag_with_append_is_refused_because_rows_would_be_stored_twice(tmp_path: Path) -> None:
    text = """
graph: g
sources:
  p: {format: jdbc, url: x, table: t, incremental: {column: c, lag: 1h}}
nodes:
  P: {from: p, mode: append}
""".lstrip()
    assert "a lag reads rows again" in error_of(tmp_path, text)
    assert error_of(tmp_path, text.replace("1h", "soon")).startswith("line 3: sources.p.incremental.lag")


def test_audit_condition_that_is_none_is_reported_with_its_line(tmp_path: Path) -> None:
    text = BASE + "audits:\n  - {diff: main, expect: drop('Customer')}\n"
    assert error_of(tmp_path, text).startswith("line 9: audits.0.expect: ")


def test_value_of_a_variable_is_not_in_errors_and_reports(tmp_path: Path) -> None:
    text = BASE.replace("path: in/*.csv", "path: 5")
    path = tmp_path / "p.yaml"
    path.write_text(text.replace("graph: shop.omni", "graph: '${ADDRESS}'"), encoding="utf-8")
    with pytest.raises(InvalidInput) as raised:
        read_pipeline(path, {"ADDRESS": "s3://top-secret"})
    assert "top-secret" not in str(raised.value)
    path.write_text(BASE.replace("from customers", "from customers where ${WORD}="), encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"near `customers where \$\{WORD\} =`"):
        read_pipeline(path, {"WORD": "topsecret"})
    assert "top-secret" not in repr(Secrets({"ADDRESS": "top-secret"}))
    assert Secrets({"A": "top-secret"}).redact("at top-secret/x") == "at ${A}/x"


def test_validate_target_that_the_graph_lacks_names_its_line(tmp_path: Path) -> None:
    og.init(tmp_path / "shop.omni", schema="node City { name: String @key }").close()
    (tmp_path / "p.yaml").write_text(BASE, encoding="utf-8")
    with pytest.raises(og.OmnigraphError, match=r"line 7: nodes\.Customer: unknown type 'node:Customer'"):
        pipelines.validate(tmp_path / "p.yaml")


def test_definition_digest_ignores_tests_and_variables(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(BASE, encoding="utf-8")
    before = read_pipeline(path, {}).digest
    path.write_text(BASE + "tests: {}\n", encoding="utf-8")
    assert read_pipeline(path, {}).digest == before
    path.write_text(BASE.replace("select id", "select 1 as id"), encoding="utf-8")
    assert read_pipeline(path, {}).digest != before


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("schema: gone.pg\n", "line 8: schema: file `{folder}/gone.pg` not found"),
        (
            "schema: shop.pg\n",
            "line 7: nodes.Customer: `shop.pg` has no node type 'Customer'; did you mean `Custmer`?",
        ),
        (
            "audits:\n  - {query: a.gq#all, expect: count = 0}\n",
            "line 9: audits.0: file `{folder}/a.gq` not found",
        ),
        (
            "audits:\n  - {query: b.gq#al, expect: count = 0}\n",
            "line 9: audits.0: `b.gq` has no query 'al'; did you",
        ),
    ],
)
def test_validate_missing_schema_type_or_query_names_its_line(
    tmp_path: Path, extra: str, message: str
) -> None:
    (tmp_path / "shop.pg").write_text("node Custmer { code: String @key }", encoding="utf-8")
    query = "query all() { match { $c: Custmer } return { $c.code } }"
    (tmp_path / "b.gq").write_text(query, encoding="utf-8")
    file = tmp_path / "p.yaml"
    file.write_text(BASE + extra, encoding="utf-8")
    with pytest.raises(og.OmnigraphError) as raised:
        pipelines.validate(file, variables={})
    assert str(raised.value).startswith(f"{file}: {message.format(folder=tmp_path)}")


def test_run_on_a_graph_that_does_not_exist_names_the_key(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(BASE, encoding="utf-8")
    with pytest.raises(NotFound, match=r"line 1: graph: there is no graph at .*shop\.omni"):
        pipelines.run(file, variables={})


@pytest.mark.parametrize(
    ("on_fail", "on_orphan", "failing"),
    [
        ("fail", None, ["endpoint", "unique"]),
        ("fail", "quarantine", ["unique"]),
        ("quarantine", None, []),
        ("quarantine", "fail", ["endpoint"]),
    ],
)
def test_on_orphan_decides_about_orphans_and_on_fail_about_other_rows(
    on_fail: FailedRows, on_orphan: Literal["fail", "quarantine"] | None, failing: list[str]
) -> None:
    target = EdgeTarget.model_validate({"from": "rows", "on_fail": on_fail, "on_orphan": on_orphan})
    assert [rule for rule in ("endpoint", "unique") if fails_run(target, rule)] == failing
