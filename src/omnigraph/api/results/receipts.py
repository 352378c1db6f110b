"""The receipt of a write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omnigraph.api.results.commits import Commit


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of a write.

    `commit` is None if nothing matched; then nothing was committed. `affected` counts rows per type. `replayed` is
    true if an earlier call with the same idempotency key made the commit; then `affected` is empty.
    """

    commit: Commit | None
    affected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    affected_nodes: int = 0
    affected_edges: int = 0
    replayed: bool = False
    query_name: str | None = None


def by_type_name(affected: Mapping[str, Mapping[str, int]]) -> dict[str, Mapping[str, int]]:
    """Return counts by type name instead of type key.

    An edge type that has the name of a node type keeps its key.

    >>> by_type_name({"node:City": {"inserted": 1}, "edge:Near": {"inserted": 2}})
    {'City': {'inserted': 1}, 'Near': {'inserted': 2}}
    """
    counts_by_name: dict[str, Mapping[str, int]] = {}
    for key, counts in sorted(affected.items(), key=lambda item: item[0].startswith("edge:")):
        name = key.split(":", 1)[1]
        counts_by_name[key if name in counts_by_name else name] = counts
    return counts_by_name
