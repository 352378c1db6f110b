"""Different things under one name after a merge: who keeps it, and what the other is called then."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from omnigraph.catalog.schema_merge.schema_conflicts import Decisions
from omnigraph.catalog.schema_merge.three_way import Side, ThreeWay


def settle_names(
    decisions: Decisions,
    names: Mapping[str, ThreeWay[str]],
    merged: Mapping[str, str],
    *,
    entity: Callable[[str], str],
    fold: Callable[[str], str] = str,
) -> dict[str, str]:
    """The merged names by key, changed where two are the same; what is left out has to go.

    `names` has what each thing is called in the base and on the sides, and `entity` how a conflict speaks of
    a name. A clash is decided for a side as a whole: each thing is called what that side calls it, and what
    the side does not have is left out.
    """
    found = dict(merged)
    # Going back to an old name may clash again, with a thing that only the other side has.
    for _ in range(len(found)):
        clashes = _clashes(found, fold)
        if not clashes:
            break
        for keys in clashes:
            side = _decide(decisions, entity, found[keys[0]], [names[key] for key in keys], fold)
            for key in keys:
                own = names[key].of(side)
                if own is None:
                    del found[key]
                else:
                    found[key] = own
    return found


def _clashes(found: Mapping[str, str], fold: Callable[[str], str]) -> list[list[str]]:
    holders: dict[str, list[str]] = {}
    for key, name in found.items():
        holders.setdefault(fold(name), []).append(key)
    return [keys for _, keys in sorted(holders.items()) if len(keys) > 1]


def _decide(
    decisions: Decisions,
    entity: Callable[[str], str],
    name: str,
    holders: list[ThreeWay[str]],
    fold: Callable[[str], str],
) -> Side:
    shown = min(own for held in holders for own in held.parts if own and fold(own) == fold(name))

    def text(place: int) -> str | None:
        for held in holders:
            own = held.parts[place]
            if own is not None and fold(own) == fold(name):
                if place == 0 or held.base == own:
                    return f"'{own}'"
                return f"'{own}', new" if held.base is None else f"'{own}', which was '{held.base}'"
        return None

    message = f"two different things are called {entity(shown)} after the merge"
    return decisions.pick(entity(shown), "name", message, ThreeWay(text(0), text(1), text(2)))
