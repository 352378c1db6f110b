"""Inheritance of properties from interfaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omnigraph.lang.diagnostics import Diagnostics
from omnigraph.lang.pg.schema_ast import NodeDecl, PropertyDecl
from omnigraph.lang.schema import InterfaceType, Property
from omnigraph.lang.suggestions import suggestion
from omnigraph.lang.types import PropType

# Annotations that change the meaning of a property; descriptions and migration hints do not.
_SEMANTIC = frozenset({"key", "unique", "index", "embed"})


def inherit(
    node: NodeDecl,
    own: Mapping[str, Property],
    interfaces: Mapping[str, InterfaceType],
    node_names: frozenset[str],
    report: Diagnostics,
) -> tuple[list[Property], bool]:
    """Return the inherited properties of a node, and whether all its interfaces are known.

    A property that the node declares itself is not inherited; its type must be that of the interface. If
    several interfaces have a property, they must agree on its type and semantics, and the first one in the list
    of interfaces provides it.
    """
    inherited: dict[str, Property] = {}
    complete = True
    seen: set[str] = set()
    spans = {item.name: item.type_span for item in node.members if isinstance(item, PropertyDecl)}
    for reference in node.implements:
        name = reference.text
        interface = interfaces.get(name)
        if interface is None:
            hint = suggestion(name, interfaces)
            if name in node_names:
                hint = f"`{name}` is a node type; only an interface can be implemented"
            message = f"node {node.name} implements unknown interface '{name}'"
            report.add(reference.span, message, hint=hint)
            complete = False
            continue
        if name in seen:
            report.add(reference.span, f"node {node.name} implements interface '{name}' twice")
            continue
        seen.add(name)
        for prop in interface.properties:
            declared = own.get(prop.name)
            if declared is not None:
                if declared.type != prop.type:
                    report.add(
                        spans[prop.name],
                        f"node {node.name} property '{prop.name}' has type {declared.type} "
                        f"but interface {name} declares it as {prop.type}",
                    )
            elif prop.name not in inherited:
                inherited[prop.name] = replace(prop, inherited=True)
            elif _semantics(inherited[prop.name]) != _semantics(prop):
                message = (
                    f"interfaces contributing '{node.name}.{prop.name}' have incompatible property semantics"
                )
                report.add(reference.span, message)
    return list(inherited.values()), complete


def _semantics(prop: Property) -> tuple[PropType, frozenset[object]]:
    return prop.type, frozenset(item for item in prop.annotations if item.name in _SEMANTIC)
