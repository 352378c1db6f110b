"""Row estimates for the planner, from table sizes and fixed selectivities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Protocol

from omnigraph.lang import ir

_SELECTIVITY = {"equal": 0.05, "range": 0.33, "other": 0.5}
ANTI_JOIN_SELECTIVITY = _SELECTIVITY["other"]
FLIPPED: dict[ir.Direction, ir.Direction] = {"out": "in", "in": "out", "both": "both"}


class Statistics(Protocol):
    """Table sizes and keys."""

    def nodes(self, type_name: str) -> int:
        """Return the number of nodes of a type."""
        ...

    def edges(self, edge_type: str) -> int:
        """Return the number of edges of a type."""
        ...

    def near_nodes(self, edge_type: str, direction: ir.Direction) -> int:
        """Return the number of nodes of the type that an expansion in this direction starts from."""
        ...

    def is_key(self, type_name: str, properties: frozenset[str]) -> bool:
        """Return whether values of these properties identify a node."""
        ...

    def has_pair_key(self, edge_type: str) -> bool:
        """Return whether the endpoints of an edge are its key."""
        ...


def scan_rows(type_name: str, where: Sequence[ir.Predicate], statistics: Statistics) -> float:
    """Estimate the number of nodes of a type that satisfy predicates."""
    equal = frozenset(
        side.property
        for item in where
        if isinstance(item, ir.Compare) and item.op == "="
        for side in (item.left, item.right)
        if isinstance(side, ir.PropertyRef)
    )
    if equal and statistics.is_key(type_name, equal):
        return 1.0
    return max(1.0, statistics.nodes(type_name) * selectivity(where))


def fan_out(
    expand: ir.Expand,
    bound: Set[str],
    types: Mapping[str, str],
    where: Mapping[str, tuple[ir.Predicate, ...]],
    statistics: Statistics,
) -> float:
    """Estimate the number of rows that an expansion makes of one row.

    `types` and `where` are the type of each variable and the predicates on it alone.
    """
    outward = expand.source in bound
    direction = expand.direction if outward else FLIPPED[expand.direction]
    near = max(1, statistics.near_nodes(expand.edge_type, direction))
    degree = statistics.edges(expand.edge_type) / near
    if direction == "both":
        degree *= 2
    target = expand.target if outward else expand.source
    nodes = max(1.0, float(statistics.nodes(types.get(target, expand.target_type))))
    reached = sum(degree**hop for hop in range(expand.min, min(expand.max, expand.min + 8) + 1))
    fan = min(reached, nodes) if expand.edge_variable is None else degree
    if expand.source in bound and expand.target in bound:
        return min(1.0, fan / nodes)
    if target not in types:
        return fan
    return fan * max(1.0 / nodes, scan_rows(types[target], where.get(target, ()), statistics) / nodes)


def selectivity(predicates: Sequence[ir.Predicate]) -> float:
    """Estimate the share of rows that satisfy all predicates."""
    found = 1.0
    for item in predicates:
        kind = "other"
        if isinstance(item, ir.Compare):
            kind = "equal" if item.op == "=" else "other" if item.op == "!=" else "range"
        found *= _SELECTIVITY[kind]
    return found
