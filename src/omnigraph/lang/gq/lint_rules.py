"""Linter of query files: errors and warnings of every query, and descriptors of its result, reads and writes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

from omnigraph.lang import ir
from omnigraph.lang.diagnostics import Diagnostic, LanguageError, Severity
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.check import check_query
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.schema import EdgeType, NodeType, Schema
from omnigraph.lang.source import Source
from omnigraph.lang.types import TYPE_NAMES, Scalar

NO_PARAMS = "mutation declares no params; hardcoded mutations are easy to miss"


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Lint result of one query; `checked` is None when the query has errors."""

    name: str
    kind: str
    checked: ir.CheckedQuery | None
    diagnostics: tuple[Diagnostic, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of the result."""
        encoded: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.checked is None:
            encoded["status"] = "error"
            encoded["error"] = self.diagnostics[0].text
            encoded["diagnostics"] = [item.to_json() for item in self.diagnostics]
            encoded["warnings"] = list(self.warnings)
        else:
            encoded["status"] = "ok"
            encoded["warnings"] = list(self.warnings)
            encoded["operation"] = describe_operation(self.checked)
        return encoded


@dataclass(frozen=True, slots=True)
class Finding:
    """An error or warning about the whole file."""

    severity: Severity
    code: str
    message: str
    type_name: str | None = None
    property: str | None = None
    query_names: tuple[str, ...] = ()
    diagnostic: Diagnostic | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of the finding."""
        encoded: dict[str, Any] = {"severity": self.severity, "code": self.code, "message": self.message}
        if self.type_name is not None:
            encoded["type_name"] = self.type_name
        if self.property is not None:
            encoded["property"] = self.property
        if self.query_names:
            encoded["query_names"] = list(self.query_names)
        if self.diagnostic is not None:
            encoded["diagnostic"] = self.diagnostic.to_json()
        return encoded


@dataclass(frozen=True, slots=True)
class LintReport:
    """Lint results of one file."""

    query_path: str
    results: tuple[QueryResult, ...]
    findings: tuple[Finding, ...]

    def count(self, severity: Severity) -> int:
        """Return the number of errors, warnings or infos, including those of single queries."""
        count = sum(item.severity == severity for item in self.findings)
        if severity == "error":
            count += sum(item.checked is None for item in self.results)
        if severity == "warning":
            count += sum(len(item.warnings) for item in self.results)
        return count

    @property
    def ok(self) -> bool:
        """Whether there are no errors."""
        return self.count("error") == 0

    def to_json(self, schema_source: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON form of the report."""
        return {
            "status": "ok" if self.ok else "error",
            "schema_source": schema_source,
            "query_path": self.query_path,
            "queries_processed": len(self.results),
            "errors": self.count("error"),
            "warnings": self.count("warning"),
            "infos": self.count("info"),
            "results": [item.to_json() for item in self.results],
            "findings": [item.to_json() for item in self.findings],
        }


def lint_queries(source: Source, schema: Schema) -> LintReport:
    """Check every query of a text. Errors are listed in the report, not raised."""
    try:
        file = parse_queries(source)
    except LanguageError as error:
        findings = tuple(Finding("error", "Q000", item.text, diagnostic=item) for item in error.diagnostics)
        return LintReport(source.name, (), findings)
    results = tuple(_lint_query(query, schema, source) for query in file.queries)
    return LintReport(source.name, results, tuple(_never_updated(file, schema)))


def _lint_query(query: ast.Query, schema: Schema, source: Source) -> QueryResult:
    is_mutation = isinstance(query.body, ast.MutationBody)
    kind = "mutation" if is_mutation else "read"
    warnings = (NO_PARAMS,) if is_mutation and not query.params else ()
    try:
        return QueryResult(query.name, kind, check_query(query, schema, source), warnings=warnings)
    except LanguageError as error:
        return QueryResult(query.name, kind, None, error.diagnostics, warnings)


def _never_updated(file: ast.QueryFile, schema: Schema) -> list[Finding]:
    """Return the L201 warnings: properties that no update sets, of types that an update of the file changes."""
    updates: dict[str, set[str]] = {}
    queries: dict[str, list[str]] = {}
    for query in file.queries:
        if isinstance(query.body, ast.ReadBody):
            continue
        for statement in query.body.statements:
            if isinstance(statement, ast.Update) and _updated_type(schema, statement.type_name) is not None:
                updates.setdefault(statement.type_name, set()).update(item.name for item in statement.assigns)
                names = queries.setdefault(statement.type_name, [])
                if query.name not in names:
                    names.append(query.name)
    findings = []
    for type_name in sorted(updates):
        entity = _updated_type(schema, type_name)
        assert entity is not None
        for name in _updatable(entity):
            if name not in updates[type_name]:
                message = f"{type_name}.{name} exists in schema but no update query sets it"
                findings.append(
                    Finding("warning", "L201", message, type_name, name, tuple(queries[type_name]))
                )
    return findings


def _updated_type(schema: Schema, name: str) -> NodeType | EdgeType | None:
    """Return the type that an update changes: a node type, or an edge type with a key."""
    edge = next((item for item in schema.edges if item.name == name and item.key is not None), None)
    return schema.node(name) or edge


def _updatable(entity: NodeType | EdgeType) -> list[str]:
    key = entity.key or ()
    records = {item.record for item in entity.embedded} if isinstance(entity, NodeType) else set()
    return [
        prop.name
        for prop in entity.properties
        if prop.type.nullable and prop.name not in key and prop.embed is None and prop.name not in records
    ]


def describe_operation(query: ir.CheckedQuery) -> dict[str, Any]:
    """Return the operation descriptor: result columns, types read, types written."""
    result = _describe_outputs(query) if isinstance(query, ir.ReadQuery) else []
    writes = query.writes if isinstance(query, ir.MutationQuery) else ()
    return {
        "result": result,
        "reads": [{"kind": item.kind, "type_name": item.type_name} for item in query.reads],
        "writes": [{"kind": item.kind, "type_name": item.type_name} for item in writes],
    }


def _describe_outputs(query: ir.ReadQuery) -> list[dict[str, Any]]:
    """Return the descriptors of the result columns. The fields of an entity are one column."""
    columns: list[dict[str, Any]] = []
    for entity, outputs in groupby(query.outputs, key=lambda item: item.entity):
        if entity is None:
            columns += map(_describe_output, outputs)
        else:
            columns.append({"name": entity.name, "kind": "object", "nullable": entity.nullable})
    return columns


def _describe_output(item: ir.Output) -> dict[str, Any]:
    type_ = item.type
    column: dict[str, Any] = {"name": item.label, "kind": item.kind}
    if type_.is_list:
        column["item_kind"] = TYPE_NAMES[type_.scalar].kind
    if type_.scalar is Scalar.VECTOR:
        column["vector_dim"] = type_.dim
    column["nullable"] = type_.nullable
    return column
