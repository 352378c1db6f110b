"""Strategies for whole schema texts: every construct of the language, including names that equal keywords."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from omnigraph.lang.literal_syntax import MAX_INTEGER, MIN_INTEGER
from omnigraph.lang.pg.schema_ast import (
    AnnotationDecl,
    BodyConstraint,
    Bounds,
    CardDecl,
    Declaration,
    EdgeDecl,
    InterfaceDecl,
    Name,
    NodeDecl,
    PropertyDecl,
    SchemaFile,
)
from omnigraph.lang.schema import LiteralValue
from omnigraph.lang.types import BASE_TYPES, PropType, Scalar, vector

T = TypeVar("T")

CONSTRAINTS = ("key", "unique", "index", "range", "check")
KEYWORDS = (*CONSTRAINTS, "node", "edge", "interface", "implements", "enum", "card", "true", "false")

names = st.sampled_from(KEYWORDS) | st.from_regex(r"[a-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
# As an argument `true` is a literal, not a name.
argument_names = names.filter(lambda name: name not in ("true", "false"))
type_names = st.from_regex(r"[A-Z][A-Za-z0-9_]{0,5}", fullmatch=True)
enum_values = st.from_regex(r"[A-Za-z0-9_-]{1,5}", fullmatch=True)
texts = st.text(st.characters(codec="utf-8"), max_size=8)
integers = st.integers(0, MAX_INTEGER)
floats = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
literals: SearchStrategy[LiteralValue] = st.one_of(texts, integers, floats, st.booleans())
signed = st.integers(MIN_INTEGER, MAX_INTEGER) | st.floats(allow_nan=False, allow_infinity=False)


def tuples(items: SearchStrategy[T], low: int = 0, high: int = 3) -> SearchStrategy[tuple[T, ...]]:
    return st.lists(items, min_size=low, max_size=high).map(tuple)


references = st.builds(Name, argument_names)
type_references = st.builds(Name, type_names)
bounds = st.one_of(
    st.builds(Bounds, signed, signed | st.none()),
    st.builds(Bounds, st.none(), signed),
)
scalars = st.sampled_from(list(BASE_TYPES.values())).map(PropType)
lists = st.sampled_from(list(BASE_TYPES.values())).map(lambda scalar: PropType(scalar, is_list=True))
vectors = st.integers(0, 10**12).map(vector)
enums = tuples(enum_values, 1, 4).map(lambda values: PropType(Scalar.STRING, enum_values=values))
types = st.one_of(scalars, lists, vectors, enums).flatmap(lambda kind: st.sampled_from([kind, kind.optional]))

kwargs = tuples(st.tuples(names, literals), 0, 2)
plain_annotations = st.builds(AnnotationDecl, names)
full_annotations = st.builds(
    AnnotationDecl, names.filter(lambda name: name not in CONSTRAINTS), literals | references, kwargs
)
any_annotation = plain_annotations | full_annotations
# In an edge header `@card` is the cardinality.
edge_annotations = any_annotation.filter(lambda item: item.name != "card")
properties = st.builds(PropertyDecl, names, types, tuples(any_annotation))
constraints = st.builds(
    BodyConstraint, st.sampled_from(CONSTRAINTS), tuples(references | literals | bounds, 1, 3)
)
members = tuples(properties | constraints, 0, 4)

interfaces = st.builds(InterfaceDecl, type_names, tuples(properties))
nodes = st.builds(NodeDecl, type_names, tuples(any_annotation, 0, 2), tuples(type_references, 0, 2), members)
edges = st.builds(
    EdgeDecl,
    type_names,
    type_references,
    type_references,
    st.none() | st.builds(CardDecl, integers, integers | st.none()),
    tuples(edge_annotations, 0, 2),
    members,
)
declarations: SearchStrategy[Declaration] = st.one_of(interfaces, nodes, edges)
schema_files = st.builds(SchemaFile, tuples(declarations, 0, 4))
