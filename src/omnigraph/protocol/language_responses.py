"""Response bodies of the routes about schema and query texts. Class names are the OpenAPI component names."""

from __future__ import annotations

from typing import Any

from omnigraph.protocol.responses import ParamDescriptor, ResponseModel


class SchemaPropertyOutput(ResponseModel):
    """A property. `type` is as in the schema; `kind` is its kind of values. `embedded_from` is the source of an
    embedding.
    """

    name: str
    type: str
    kind: str
    nullable: bool
    enum_values: list[str] | None
    description: str | None
    embedded_from: str | None
    full_text: bool


class SchemaRangeOutput(ResponseModel):
    """Inclusive bounds of a property; null leaves a side unbounded."""

    property: str
    min: float | None
    max: float | None


class SchemaCheckOutput(ResponseModel):
    """A pattern that a property must contain a match of."""

    property: str
    pattern: str


class SchemaInterfaceOutput(ResponseModel):
    """An interface type."""

    name: str
    description: str | None
    properties: list[SchemaPropertyOutput]
    key: list[str] | None
    uniques: list[list[str]]
    indexes: list[list[str]]
    ranges: list[SchemaRangeOutput]
    checks: list[SchemaCheckOutput]


class SchemaNodeOutput(SchemaInterfaceOutput):
    """A node type."""

    implements: list[str]


class SchemaCardinalityOutput(ResponseModel):
    """Number of edges for each source node; a maximum of null is unbounded."""

    min: int
    max: int | None


class SchemaEdgeOutput(SchemaInterfaceOutput):
    """An edge type between two node types."""

    source: str
    target: str
    cardinality: SchemaCardinalityOutput


class SchemaTypesOutput(ResponseModel):
    """The types of a schema, each group sorted by name."""

    interfaces: list[SchemaInterfaceOutput]
    nodes: list[SchemaNodeOutput]
    edges: list[SchemaEdgeOutput]


class DiagnosticOutput(ResponseModel):
    """An error or a warning. Positions are byte offsets in UTF-8; they are null if it is about the whole text."""

    severity: str
    code: str | None
    message: str
    line: int | None
    column: int | None
    start: int | None
    end: int | None
    hint: str | None


class LintedQueryOutput(ResponseModel):
    """A query without errors: its parameters, and its result columns, and types that it reads and writes."""

    name: str
    mutation: bool
    description: str | None
    params: list[ParamDescriptor]
    operation: dict[str, Any]


class LintOutput(ResponseModel):
    """Errors and warnings of a text, and the queries without errors."""

    ok: bool
    diagnostics: list[DiagnosticOutput]
    queries: list[LintedQueryOutput]
