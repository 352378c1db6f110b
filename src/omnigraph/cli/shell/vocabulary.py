"""The names that the shell completes: types, properties, branches, tags and queries of the open graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from omnigraph.cli.shell.session import Session
from omnigraph.errors import OmnigraphError

if TYPE_CHECKING:
    from omnigraph.lang.schema import Schema

# The number of names of one kind that are offered.
_MAX_NAMES = 200

T = TypeVar("T")


@dataclass
class Vocabulary:
    """The names of a session. The schema is read once for each branch or state, the others when they are needed."""

    session: Session
    _schemas: dict[tuple[str, str | None], Schema | None] = field(default_factory=dict)

    def node_types(self) -> list[str]:
        """Return the names of the node types."""
        schema = self._schema()
        return [] if schema is None else [node.name for node in schema.nodes]

    def edge_types(self) -> list[str]:
        """Return the names of the edge types."""
        schema = self._schema()
        return [] if schema is None else [edge.name for edge in schema.edges]

    def properties(self, type_name: str | None) -> list[str]:
        """Return the properties of a type, or of all types if it is not known."""
        schema = self._schema()
        types = [] if schema is None else [*schema.nodes, *schema.edges]
        chosen = [item for item in types if item.name == type_name] or types
        return sorted({prop.name for item in chosen for prop in item.properties})

    def branches(self, prefix: str) -> list[str]:
        """Return the branches that begin with a text."""
        return _or_none(lambda: self.session.graph.branches.list(prefix=prefix, limit=_MAX_NAMES)) or []

    def states(self, prefix: str) -> list[str]:
        """Return the names of states: HEAD, tags and branches."""
        tags = _or_none(lambda: [tag.name for tag in self.session.graph.tags.list()]) or []
        return ["HEAD", *tags[:_MAX_NAMES], *self.branches(prefix)]

    def queries(self) -> list[str]:
        """Return the declared queries, and the stored queries of a server."""
        from omnigraph.client.graph import RemoteGraph

        graph = self.session.graph
        stored = _or_none(graph.queries) if isinstance(graph, RemoteGraph) else None
        return [*self.session.queries, *(entry.name for entry in stored or [])]

    def _schema(self) -> Schema | None:
        from omnigraph.lang.pg.schema_compiler import load_schema

        session = self.session
        key = (session.branch, session.at)
        if key not in self._schemas:
            self._schemas[key] = _or_none(
                lambda: load_schema(session.graph.schema.source(session.branch, session.state))
            )
        return self._schemas[key]


def _or_none(read: Callable[[], T]) -> T | None:
    """Return what is read, or None after an error, which the statement reports when it is run."""
    try:
        return read()
    except OmnigraphError:
        return None
