"""Compiler of `.pg` texts: from the AST to the compiled schema."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from omnigraph.lang.diagnostics import Diagnostics
from omnigraph.lang.pg.schema_ast import (
    BodyConstraint,
    Declaration,
    EdgeDecl,
    InterfaceDecl,
    Name,
    NodeDecl,
    PropertyDecl,
    SchemaFile,
)
from omnigraph.lang.pg.schema_constraints import (
    ConstraintCompiler,
    check_embeds,
    check_single_key,
    embedding_records,
)
from omnigraph.lang.pg.schema_interfaces import inherit
from omnigraph.lang.pg.schema_parser import parse_schema
from omnigraph.lang.pg.schema_properties import DeclaringType, compile_property, compile_type_annotations
from omnigraph.lang.schema import Cardinality, EdgeType, InterfaceType, NodeType, Property, Schema
from omnigraph.lang.source import Source
from omnigraph.lang.suggestions import suggestion

_Decl = TypeVar("_Decl", InterfaceDecl, NodeDecl, EdgeDecl)


def load_schema(text: str, name: str = "<schema>") -> Schema:
    """Parse and compile a schema text; `name` is its name in messages.

    Raises `LanguageError` with all syntax errors, or when there are none with all other errors.

    >>> [node.name for node in load_schema("node Person { name: String @key }").nodes]
    ['Person']
    """
    source = Source(text, name)
    return compile_schema(parse_schema(source), source)


def compile_schema(file: SchemaFile, source: Source) -> Schema:
    """Check all rules of the language and return the compiled schema.

    Raises `LanguageError` with all errors of the text in source order. Errors inside a declaration, or between
    a node and its interfaces, are ``parse error``. Errors between the names of the schema are ``catalog
    error``: duplicate types and properties, unknown endpoints, edge names that collide.

    In the result types, properties and enum values are sorted. The columns of a constraint are in source order.
    """
    report = Diagnostics(source, "parse")
    schema = _Compiler(file, report).compile()
    report.raise_if_any()
    return schema


class _Compiler:
    def __init__(self, file: SchemaFile, report: Diagnostics) -> None:
        self._report = report
        self._interface_decls = self._distinct(file.declarations, InterfaceDecl, "interface")
        self._node_decls = self._distinct(file.declarations, NodeDecl, "node type")
        self._edge_decls = self._distinct(file.declarations, EdgeDecl, "edge type")
        self._node_names = frozenset(item.name for item in self._node_decls)
        self._interfaces = {item.name: self._interface(item) for item in self._interface_decls}

    def compile(self) -> Schema:
        nodes = [self._node(item) for item in self._node_decls]
        self._check_folded_names()
        edges = [self._edge(item) for item in self._edge_decls]
        return Schema(_by_name(self._interfaces.values()), _by_name(nodes), _by_name(edges))

    # --- types -------------------------------------------------------------------------------------------

    def _interface(self, decl: InterfaceDecl) -> InterfaceType:
        owner = DeclaringType("interface", decl.name)
        return InterfaceType(decl.name, _by_name(self._properties(owner, decl.properties)))

    def _node(self, decl: NodeDecl) -> NodeType:
        owner = DeclaringType("node", decl.name)
        annotations = compile_type_annotations(owner, decl.annotations, self._report)
        own = self._properties(owner, decl.members)
        by_name = {item.name: item for item in own}
        inherited, complete = inherit(decl, by_name, self._interfaces, self._node_names, self._report)
        properties = _by_name([*own, *inherited])
        if complete:
            check_embeds(decl, properties, self._report)
        properties = _by_name([*properties, *embedding_records(decl, properties, self._report)])
        check_single_key("node", decl, properties, self._report)
        constraints = ConstraintCompiler(owner, properties, self._report, complete=complete)
        return NodeType(
            decl.name,
            properties,
            constraints.compile(item for item in decl.members if isinstance(item, BodyConstraint)),
            annotations,
            implements=tuple(dict.fromkeys(item.text for item in decl.implements)),
        )

    def _edge(self, decl: EdgeDecl) -> EdgeType:
        owner = DeclaringType("edge", decl.name)
        self._check_endpoint(decl, "source", decl.source)
        self._check_endpoint(decl, "target", decl.target)
        annotations = compile_type_annotations(owner, decl.annotations, self._report)
        properties = _by_name(self._properties(owner, decl.members))
        check_single_key("edge", decl, properties, self._report)
        constraints = ConstraintCompiler(owner, properties, self._report)
        return EdgeType(
            decl.name,
            properties,
            constraints.compile(item for item in decl.members if isinstance(item, BodyConstraint)),
            annotations,
            source=decl.source.text,
            target=decl.target.text,
            cardinality=self._cardinality(decl),
        )

    def _properties(
        self, owner: DeclaringType, members: Iterable[PropertyDecl | BodyConstraint]
    ) -> list[Property]:
        found: dict[str, Property] = {}
        for decl in members:
            if not isinstance(decl, PropertyDecl):
                continue
            if decl.name in found:
                message = f"duplicate property '{owner.name}.{decl.name}'"
                self._report.add(decl.span, message, phase="catalog")
            else:
                found[decl.name] = compile_property(owner, decl, self._report)
        return list(found.values())

    def _cardinality(self, decl: EdgeDecl) -> Cardinality:
        if decl.card is None:
            return Cardinality()
        low, high = decl.card.min, decl.card.max
        if high is not None and low > high:
            self._report.add(decl.card.span, f"cardinality min ({low}) exceeds max ({high})")
        return Cardinality(low, high)

    # --- names of the whole schema -----------------------------------------------------------------------

    def _distinct(self, declarations: Iterable[Declaration], kind: type[_Decl], word: str) -> list[_Decl]:
        """Return the declarations of a kind, only the first of each name."""
        found: dict[str, _Decl] = {}
        for decl in declarations:
            if not isinstance(decl, kind):
                continue
            if decl.name in found:
                self._report.add(decl.span, f"duplicate {word}: {decl.name}", phase="catalog")
            else:
                found[decl.name] = decl
        return list(found.values())

    def _check_endpoint(self, decl: EdgeDecl, end: str, reference: Name) -> None:
        name = reference.text
        if name in self._node_names:
            return
        hint = suggestion(name, self._node_names)
        if name in self._interfaces:
            hint = f"`{name}` is an interface; an edge connects node types"
        message = f"edge {decl.name} references unknown {end} type: {name}"
        self._report.add(reference.span, message, hint=hint, phase="catalog")

    def _check_folded_names(self) -> None:
        first: dict[str, str] = {}
        for decl in self._edge_decls:
            other = first.setdefault(decl.name.lower(), decl.name)
            if other != decl.name:
                message = f"edge name collision after case folding: '{decl.name}' conflicts with '{other}'"
                self._report.add(decl.span, message, phase="catalog")


_Named = TypeVar("_Named", InterfaceType, NodeType, EdgeType, Property)


def _by_name(items: Iterable[_Named]) -> tuple[_Named, ...]:
    return tuple(sorted(items, key=lambda item: item.name))
