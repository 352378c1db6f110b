"""`Graph`: the interface of a graph, implemented by `LocalGraph` and `RemoteGraph`."""

from __future__ import annotations

from abc import abstractmethod
from types import TracebackType
from typing import Self

from omnigraph.api.interface.branches import Branches
from omnigraph.api.interface.change_reads import ChangeReads
from omnigraph.api.interface.embeddings import Embeddings
from omnigraph.api.interface.graph_history import GraphHistory
from omnigraph.api.interface.graph_maintenance import GraphMaintenance
from omnigraph.api.interface.graph_reads import GraphReads
from omnigraph.api.interface.graph_writes import GraphWrites
from omnigraph.api.interface.schemas import SchemaView
from omnigraph.api.interface.tags import Tags
from omnigraph.api.interface.type_reads import TypeReads
from omnigraph.api.interface.type_writes import TypeWrites
from omnigraph.api.results.commits import Commit


class Graph(GraphReads, TypeReads, GraphWrites, TypeWrites, GraphHistory, ChangeReads, GraphMaintenance):
    """A handle on a graph.

    A handle can be shared between threads. It pickles to its address, never to data. Public methods have the
    arguments and the defaults; an implementation provides the method of the same name with an underscore.

    >>> import omnigraph as og
    >>> g = og.init("memory://docs-graph", schema="node Person { name: String @key  age: I32? }", actor="ana")
    >>> add = 'query add($n: String) { insert Person { name: $n, age: 30 } }'
    >>> g.mutate(add, {"n": "Bo"}).affected
    {'Person': {'inserted': 1, 'updated': 0, 'deleted': 0}}
    >>> [commit.operation for commit in g.commits()]
    ['mutate', 'init']
    """

    branches: Branches
    tags: Tags
    schema: SchemaView
    embeddings: Embeddings

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    def _repr_html_(self) -> str:
        """Return the types of the branch ``main`` with their numbers of rows, for notebooks."""
        from omnigraph.api.display.html_table import html_table

        head = self.snapshot()
        tables = head.catalog.tables.values()
        rows = [[table.name, table.kind, head.pin(table.key).rows] for table in tables]
        rows.sort(key=lambda row: (row[1] != "node", row[0]))
        when = Commit.of(head.commit).created_at
        caption = (
            f"{self.uri} · main at {head.commit_id} · {head.commit.operation}, {when:%Y-%m-%d %H:%M} UTC"
        )
        return html_table(
            ["type", "kind", "rows"], sorted(rows, key=lambda row: (row[1] != "node", row[0])), caption
        )

    @property
    @abstractmethod
    def uri(self) -> str:
        """The address of the graph in its normal form."""

    @property
    @abstractmethod
    def actor(self) -> str | None:
        """The actor that writes record and that the policy checks."""

    @abstractmethod
    def acting_as(self, actor: str | None) -> Graph:
        """Return a handle for another actor that shares the resources of this handle.

        Closing the returned handle does nothing.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-acting-as", schema="node City { name: String @key }")
        >>> g.acting_as("bo").load({"City": [{"name": "Bern"}]}).commit.actor
        'bo'
        """

    @abstractmethod
    def close(self) -> None:
        """Release threads and connections. Later calls raise `InvalidInput`. Idempotent.

        Closing is optional: every commit is complete when its call returns.
        """
