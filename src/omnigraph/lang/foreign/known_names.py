"""The names of a schema, found for the spellings that are usual in other languages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from omnigraph.lang.foreign.tokens import Untranslatable
from omnigraph.lang.schema import Schema


@dataclass(frozen=True)
class KnownNames:
    """The node and edge types of a schema, by what remains of a name without case and underscores."""

    nodes: dict[str, str]
    edges: dict[str, str]

    @classmethod
    def of(cls, schema: Schema) -> KnownNames:
        """Return the names of a schema."""
        return cls(_folded(node.name for node in schema.nodes), _folded(edge.name for edge in schema.edges))

    def node(self, label: str) -> str:
        """Return a node type: ``person`` and ``persons`` are `Person`."""
        folded = _fold(label)
        for name in (folded, folded.removesuffix("s")):
            if name in self.nodes:
                return self.nodes[name]
        raise Untranslatable(label)

    def edge(self, label: str) -> str:
        """Return an edge as queries write it: ``WORKS_AT`` is `worksAt`."""
        found = self.edges.get(_fold(label))
        if found is None:
            raise Untranslatable(label)
        return found[0].lower() + found[1:]

    def any_type(self, label: str) -> str:
        """Return a node or edge type, for the statements of a mutation."""
        found = self.edges.get(_fold(label))
        return self.node(label) if found is None else found


def _folded(names: Iterable[str]) -> dict[str, str]:
    return {_fold(name): name for name in names}


def _fold(name: str) -> str:
    return name.replace("_", "").lower()
