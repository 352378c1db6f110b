"""Which accepted type or property each desired one continues: by its own name, or by ``@rename_from``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from omnigraph.catalog.shape import RENAME_HINT
from omnigraph.errors import InvalidInput
from omnigraph.lang.schema import Annotation, EdgeType, InterfaceType, NodeType, Schema, TypeKind
from omnigraph.lang.suggestions import nearest_name

AnyType: TypeAlias = InterfaceType | NodeType | EdgeType
TypeName: TypeAlias = tuple[TypeKind, str]
PropertyName: TypeAlias = tuple[TypeKind, str, str]

_ARTICLES: Mapping[TypeKind, str] = {"interface": "an interface", "node": "a node", "edge": "an edge"}


@dataclass(frozen=True, slots=True)
class Matching:
    """Desired names and the accepted names they continue. A desired name that is missing here is new."""

    types: Mapping[TypeName, str]
    properties: Mapping[PropertyName, str]

    def renamed_types(self, kind: TypeKind) -> dict[str, str]:
        """New names by old name, of the types of a kind."""
        return {old: new for (of, new), old in self.types.items() if of == kind}

    def renamed_properties(self, kind: TypeKind, owner: str) -> dict[str, str]:
        """New names by old name, of the properties of a desired type."""
        return {old: new for (of, name, new), old in self.properties.items() if (of, name) == (kind, owner)}


def all_types(schema: Schema) -> Iterator[AnyType]:
    """Interfaces, nodes, edges, each by name: the order identities and plan steps come in."""
    groups: tuple[tuple[AnyType, ...], ...] = (schema.interfaces, schema.nodes, schema.edges)
    for group in groups:
        yield from sorted(group, key=lambda item: item.name)


def match_schemas(accepted: Schema, desired: Schema) -> Matching:
    """Pair every desired type and property with the accepted one whose identity it keeps.

    An exact name wins, which is why a hint may stay in the text after it has done its work. A hint that is
    needed must name something of the same kind and owner that nothing else continues; every hint that does
    not is reported in one `InvalidInput`, whose `details["errors"]` lists them all.
    """
    errors: list[tuple[str, str | None]] = []
    types = _match_types(accepted, desired, errors)
    properties = _match_properties(accepted, desired, types, errors)
    if errors:
        message, hint = errors[0]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise InvalidInput(message + more, details={"errors": [text for text, _ in errors]}, hint=hint)
    return Matching(types, properties)


def _match_types(
    accepted: Schema, desired: Schema, errors: list[tuple[str, str | None]]
) -> dict[TypeName, str]:
    known = {(item.kind, item.name) for item in all_types(accepted)}
    wanted = list(all_types(desired))
    found = {(item.kind, item.name): item.name for item in wanted if (item.kind, item.name) in known}
    taken = {(kind, old): new for (kind, new), old in found.items()}
    for item in wanted:
        old = _hinted(item.annotation(RENAME_HINT))
        if old is None or (item.kind, item.name) in found:
            continue
        where = f"@rename_from(\"{old}\") on {item.kind} '{item.name}'"
        if (item.kind, old) in taken:
            other = taken[item.kind, old]
            errors.append((f"{where}: {item.kind} '{old}' is already continued by '{other}'", None))
        elif (item.kind, old) in known:
            found[item.kind, item.name] = old
            taken[item.kind, old] = item.name
        else:
            errors.append(_unknown_type(where, item.kind, old, known))
    return found


def _unknown_type(where: str, kind: TypeKind, old: str, known: set[TypeName]) -> tuple[str, str | None]:
    others = sorted(of for of, name in known if name == old)
    if others:
        return f"{where}: '{old}' is {_ARTICLES[others[0]]} type; a rename stays within its kind", None
    near = nearest_name(old, sorted(name for of, name in known if of == kind))
    hint = f"did you mean '{near}'?" if near else None
    return f"{where}: the accepted schema has no {kind} type '{old}'", hint


def _match_properties(
    accepted: Schema,
    desired: Schema,
    types: Mapping[TypeName, str],
    errors: list[tuple[str, str | None]],
) -> dict[PropertyName, str]:
    before = {(item.kind, item.name): item for item in all_types(accepted)}
    found: dict[PropertyName, str] = {}
    for item in all_types(desired):
        old_name = types.get((item.kind, item.name))
        owner = None if old_name is None else before[item.kind, old_name]
        known = {} if owner is None else dict(owner.by_name)
        taken = {prop.name: prop.name for prop in item.properties if prop.name in known}
        for prop in sorted(item.properties, key=lambda prop: prop.name):
            if prop.name in known:
                found[item.kind, item.name, prop.name] = prop.name
                continue
            old = _hinted(prop.annotation(RENAME_HINT))
            if old is None:
                continue
            if old in known and old not in taken:
                found[item.kind, item.name, prop.name] = old
                taken[old] = prop.name
            elif not prop.inherited:
                # An inherited hint was written for the interface, where it is checked; on a node that never
                # had the old property it has nothing to do.
                where = f"@rename_from(\"{old}\") on property '{item.name}.{prop.name}'"
                errors.append(_refused_property(where, item, owner, old, taken, accepted))
    return found


def _refused_property(
    where: str, item: AnyType, owner: AnyType | None, old: str, taken: Mapping[str, str], accepted: Schema
) -> tuple[str, str | None]:
    if owner is None:
        reason = f"'{item.name}' is a new type and cannot take over the identity of a property"
        return f"{where}: {reason}", None
    if old in taken:
        return f"{where}: property '{owner.name}.{old}' is already continued by '{taken[old]}'", None
    others = [other.name for other in all_types(accepted) if old in other.by_name]
    if others:
        return f"{where}: '{old}' is a property of '{others[0]}'; a rename stays within its type", None
    near = nearest_name(old, sorted(owner.by_name))
    hint = f"did you mean '{near}'?" if near else None
    return f"{where}: the accepted {owner.kind} '{owner.name}' has no property '{old}'", hint


def _hinted(annotation: Annotation | None) -> str | None:
    return None if annotation is None else str(annotation.value)
