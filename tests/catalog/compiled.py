"""Strategies for schemas that compile, and for later versions of them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.identity import next_identities
from omnigraph.catalog.migration.renames import match_schemas
from omnigraph.catalog.schema_text import schema_text
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.lang.pg.schema_patterns import pattern_problem
from omnigraph.lang.pg.schema_properties import unsupported_shape
from omnigraph.lang.schema import (
    Annotation,
    AnyType,
    Check,
    Constraint,
    EdgeType,
    Key,
    Property,
    Range,
    Schema,
)
from omnigraph.lang.types import STRING, PropType, Scalar
from tests.catalog.edits import edited
from tests.catalog.strategies import schemas


def legal(schema: Schema) -> Schema:
    """Return the schema without invalid parts. Nodes do not redeclare inherited properties."""
    faces = {item.name: replace(item, properties=_legal_properties(item)) for item in schema.interfaces}
    nodes = []
    for node in schema.nodes:
        taken: dict[str, Property] = {}
        implements = []
        for name in node.implements:
            if not taken.keys() & faces[name].by_name.keys():
                implements.append(name)
                taken |= faces[name].by_name
        bare = replace(
            node,
            properties=tuple(
                item for item in node.properties if item.name not in taken and not item.inherited
            ),
        )
        own = replace(bare, properties=_legal_properties(bare), implements=tuple(implements))
        nodes.append(_finished(own, taken))
    edges = []
    for edge in schema.edges:
        bare_edge = replace(
            edge, properties=tuple(replace(item, inherited=False) for item in edge.properties)
        )
        edges.append(_finished(replace(bare_edge, properties=_legal_properties(bare_edge)), {}))
    return Schema(tuple(faces.values()), tuple(nodes), tuple(edges))  # type: ignore[arg-type]


def _finished(item: AnyType, inherited: dict[str, Property]) -> AnyType:
    types = {prop.name: prop.type for prop in (*item.properties, *inherited.values())}
    if isinstance(item, EdgeType):
        types |= {"src": STRING, "dst": STRING}
    keyed = any(prop.annotation("key") for prop in inherited.values())
    constraints: list[Constraint] = []
    for constraint in item.constraints:
        if isinstance(constraint, Key):
            if keyed:
                continue
            keyed = True
        if _is_legal(constraint, types, isinstance(item, EdgeType)):
            constraints.append(constraint)
    notes = tuple(note for note in item.annotations if _is_said(note))
    return replace(item, constraints=tuple(constraints), annotations=notes)


def _is_legal(constraint: Constraint, types: dict[str, PropType], on_edge: bool) -> bool:
    if isinstance(constraint, Range):
        low, high = constraint.min, constraint.max
        numeric = constraint.property in types and types[constraint.property].is_numeric and not on_edge
        return numeric and (low, high) != (None, None) and (low is None or high is None or low <= high)
    if isinstance(constraint, Check):
        kind = types.get(constraint.property)
        textual = kind is not None and kind.scalar is Scalar.STRING and not kind.is_list and not on_edge
        return textual and pattern_problem(constraint.pattern) is None
    word = type(constraint).__name__.lower()
    if isinstance(constraint, Key) and (
        on_edge or any(types[name].nullable for name in constraint.columns if name in types)
    ):
        return False
    return all(name in types and not unsupported_shape(word, types[name]) for name in constraint.columns)


def _legal_properties(owner: AnyType) -> tuple[Property, ...]:
    found = []
    for prop in owner.properties:
        notes = tuple(note for note in prop.annotations if _fits(note, prop, owner))
        found.append(replace(prop, annotations=notes, inherited=False))
    return tuple(found)


def _fits(note: Annotation, prop: Property, owner: AnyType) -> bool:
    if note.name in ("unique", "index"):
        return unsupported_shape(note.name, prop.type) is None
    if note.name == "embed":
        source = owner.by_name.get(str(note.value))
        textual = source is not None and source.type.scalar is Scalar.STRING and not source.type.is_list
        return textual and not isinstance(owner, EdgeType)
    return _is_said(note)


def _is_said(note: Annotation) -> bool:
    return note.name not in ("description", "instruction") or bool(str(note.value).strip())


legal_schemas = schemas().map(legal)
compiled_schemas = legal_schemas.map(lambda schema: load_schema(schema_text(schema)))


@st.composite
def successors(draw: st.DrawFn, catalog: Catalog, *, counter: int = 1) -> Catalog:
    """Return the catalog after some edits; renames keep identities."""
    desired = draw(edited(catalog.schema))
    text = schema_text(legal(desired))
    schema = load_schema(text)
    matching = match_schemas(catalog.schema, desired)
    if schema == catalog.schema:
        return catalog
    return Catalog(text, schema, next_identities(catalog.identities, schema, matching, counter=counter))
