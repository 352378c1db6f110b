"""What a node gets from the interfaces that it implements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omnigraph.lang.pg.schema_ast import NodeDecl, PropertyDecl
from omnigraph.lang.schema import InterfaceType, Property
from omnigraph.lang.source import Diagnostics, suggestion
from omnigraph.lang.types import PropType

# What changes the meaning of a property; documentation and migration hints do not.
_SEMANTIC = frozenset({"key", "unique", "index", "embed"})


def inherit(
    node: NodeDecl,
    own: Mapping[str, Property],
    interfaces: Mapping[str, InterfaceType],
    node_names: frozenset[str],
    report: Diagnostics,
) -> tuple[list[Property], bool]:
    """The properties that a node does not declare itself, and whether every interface was found.

    A property that the node declares stays as the node says it; its type must be the interface's. If several
    interfaces contribute a property they must agree, and the first one in the list of interfaces gives it.
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
            elif _meaning(inherited[prop.name]) != _meaning(prop):
                message = (
                    f"interfaces contributing '{node.name}.{prop.name}' have incompatible property semantics"
                )
                report.add(reference.span, message)
    return list(inherited.values()), complete


def _meaning(prop: Property) -> tuple[PropType, frozenset[object]]:
    return prop.type, frozenset(item for item in prop.annotations if item.name in _SEMANTIC)
