"""Resolution of name collisions: different elements that have the same name after a merge."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from omnigraph.catalog.schema_merge.schema_conflicts import ConflictResolver
from omnigraph.catalog.schema_merge.three_way import Side, ThreeWay


def resolve_names(
    resolver: ConflictResolver,
    names: Mapping[str, ThreeWay[str]],
    merged: Mapping[str, str],
    *,
    entity: Callable[[str], str],
    fold: Callable[[str], str] = str,
) -> dict[str, str]:
    """Return unique merged names by key; elements without an entry are dropped.

    `names` has the names of each element in the merge base and on both sides. `entity` formats a name for
    conflicts. A collision is resolved for one side as a whole: each element gets its name on that side, and
    elements that the side does not have are dropped.
    """
    resolved = dict(merged)
    # A name of one side may collide again, with an element that only the other side has.
    for _ in range(len(resolved)):
        collisions = _collisions(resolved, fold)
        if not collisions:
            break
        for keys in collisions:
            side = _resolve_collision(resolver, entity, resolved[keys[0]], [names[key] for key in keys], fold)
            for key in keys:
                own = names[key].of(side)
                if own is None:
                    del resolved[key]
                else:
                    resolved[key] = own
    return resolved


def _collisions(names: Mapping[str, str], fold: Callable[[str], str]) -> list[list[str]]:
    holders: dict[str, list[str]] = {}
    for key, name in names.items():
        holders.setdefault(fold(name), []).append(key)
    return [keys for _, keys in sorted(holders.items()) if len(keys) > 1]


def _resolve_collision(
    resolver: ConflictResolver,
    entity: Callable[[str], str],
    name: str,
    holders: list[ThreeWay[str]],
    fold: Callable[[str], str],
) -> Side:
    label = min(own for held in holders for own in held.parts if own and fold(own) == fold(name))

    def text(index: int) -> str | None:
        for held in holders:
            own = held.parts[index]
            if own is not None and fold(own) == fold(name):
                if index == 0 or held.base == own:
                    return f"'{own}'"
                return f"'{own}', new" if held.base is None else f"'{own}', which was '{held.base}'"
        return None

    message = f"the two sides use the name {entity(label)} for different elements"
    return resolver.resolve(entity(label), "name", message, ThreeWay(text(0), text(1), text(2)))
