"""Matching of the types and properties of two schemas, by name or by ``@rename_from``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from omnigraph.catalog.shape import RENAME_HINT
from omnigraph.errors import InvalidInput
from omnigraph.lang.schema import Annotation, AnyType, Schema, TypeKind, all_types
from omnigraph.lang.suggestions import suggestion

TypeName: TypeAlias = tuple[TypeKind, str]
PropertyName: TypeAlias = tuple[TypeKind, str, str]

_ARTICLES: Mapping[TypeKind, str] = {"interface": "an interface", "node": "a node", "edge": "an edge"}


@dataclass(frozen=True, slots=True)
class Matching:
    """Accepted names by desired name. A desired name without an entry is new."""

    types: Mapping[TypeName, str]
    properties: Mapping[PropertyName, str]

    def renamed_types(self, kind: TypeKind) -> dict[str, str]:
        """Return the new names of the types of a kind by old name."""
        return {old: new for (of, new), old in self.types.items() if of == kind}

    def renamed_properties(self, kind: TypeKind, owner: str) -> dict[str, str]:
        """Return the new names of the properties of a desired type by old name."""
        return {old: new for (of, name, new), old in self.properties.items() if (of, name) == (kind, owner)}


@dataclass(frozen=True, slots=True)
class _RenameError:
    message: str
    hint: str | None = None


def match_schemas(accepted: Schema, desired: Schema) -> Matching:
    """Match every desired type and property with the accepted one whose identity it keeps.

    A name that exists in both schemas matches itself, so that a rename hint can stay in the text after the
    migration. Any other hint must name an unmatched element of the same kind and owner. Raises `InvalidInput`
    for the hints that do not; `details["errors"]` lists all of them.
    """
    types, type_errors = _match_types(accepted, desired)
    properties, property_errors = _match_properties(accepted, desired, types)
    errors = type_errors + property_errors
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        details = {"errors": [error.message for error in errors]}
        raise InvalidInput(errors[0].message + more, details=details, hint=errors[0].hint)
    return Matching(types, properties)


def _match_types(accepted: Schema, desired: Schema) -> tuple[dict[TypeName, str], list[_RenameError]]:
    known = {(item.kind, item.name) for item in all_types(accepted)}
    declared = list(all_types(desired))
    matched = {(item.kind, item.name): item.name for item in declared if (item.kind, item.name) in known}
    taken = {(kind, old): new for (kind, new), old in matched.items()}
    errors: list[_RenameError] = []
    for item in declared:
        old = _hinted(item.annotation(RENAME_HINT))
        if old is None or (item.kind, item.name) in matched:
            continue
        hint_text = f"@rename_from(\"{old}\") on {item.kind} '{item.name}'"
        if (item.kind, old) in taken:
            other = taken[item.kind, old]
            errors.append(_RenameError(f"{hint_text}: {item.kind} '{old}' is already matched by '{other}'"))
        elif (item.kind, old) in known:
            matched[item.kind, item.name] = old
            taken[item.kind, old] = item.name
        else:
            errors.append(_unknown_type(hint_text, item.kind, old, known))
    return matched, errors


def _unknown_type(hint_text: str, kind: TypeKind, old: str, known: set[TypeName]) -> _RenameError:
    others = sorted(of for of, name in known if name == old)
    if others:
        reason = f"'{old}' is {_ARTICLES[others[0]]} type; a rename cannot change the kind of a type"
        return _RenameError(f"{hint_text}: {reason}")
    names = sorted(name for of, name in known if of == kind)
    return _RenameError(
        f"{hint_text}: the accepted schema has no {kind} type '{old}'", suggestion(old, names)
    )


def _match_properties(
    accepted: Schema, desired: Schema, types: Mapping[TypeName, str]
) -> tuple[dict[PropertyName, str], list[_RenameError]]:
    before = {(item.kind, item.name): item for item in all_types(accepted)}
    matched: dict[PropertyName, str] = {}
    errors: list[_RenameError] = []
    for item in all_types(desired):
        old_name = types.get((item.kind, item.name))
        owner = None if old_name is None else before[item.kind, old_name]
        known = {} if owner is None else dict(owner.by_name)
        taken = {prop.name: prop.name for prop in item.properties if prop.name in known}
        for prop in sorted(item.properties, key=lambda prop: prop.name):
            if prop.name in known:
                matched[item.kind, item.name, prop.name] = prop.name
                continue
            old = _hinted(prop.annotation(RENAME_HINT))
            if old is None:
                continue
            if old in known and old not in taken:
                matched[item.kind, item.name, prop.name] = old
                taken[old] = prop.name
            elif not prop.inherited:
                # An inherited hint is checked on the interface. A node that never had the old property ignores
                # it.
                hint_text = f"@rename_from(\"{old}\") on property '{item.name}.{prop.name}'"
                errors.append(_unmatched_property(hint_text, item, owner, old, taken, accepted))
    return matched, errors


def _unmatched_property(
    hint_text: str, item: AnyType, owner: AnyType | None, old: str, taken: Mapping[str, str], accepted: Schema
) -> _RenameError:
    if owner is None:
        return _RenameError(f"{hint_text}: '{item.name}' is a new type without properties to rename")
    if old in taken:
        return _RenameError(
            f"{hint_text}: property '{owner.name}.{old}' is already matched by '{taken[old]}'"
        )
    others = [other.name for other in all_types(accepted) if old in other.by_name]
    if others:
        reason = f"'{old}' is a property of '{others[0]}'; a rename cannot move a property to another type"
        return _RenameError(f"{hint_text}: {reason}")
    return _RenameError(
        f"{hint_text}: the accepted {owner.kind} '{owner.name}' has no property '{old}'",
        suggestion(old, sorted(owner.by_name)),
    )


def _hinted(annotation: Annotation | None) -> str | None:
    return None if annotation is None else str(annotation.value)
