"""The methods of `Graph` that read the rows of one type without a query text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.api.interface.graph_reads import QueryOptions
from omnigraph.api.results.commits import At, check_limit
from omnigraph.errors import InvalidInput
from omnigraph.lang.schema import TypeKind

if TYPE_CHECKING:
    from omnigraph.api.interface.row_arguments import FrameLibrary
    from omnigraph.api.results.result import Result
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.lang.gq.type_query import Where


class TypeReads(ABC):
    """The nodes or edges of one type, as a result or as a data frame."""

    def nodes(
        self,
        type_name: str,
        where: Where = None,
        params: Mapping[str, Any] | None = None,
        *,
        columns: Sequence[str] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
        branch: str = "main",
        at: At = None,
    ) -> Result:
        """Return the nodes of a type: the id and all properties except Blobs, or only `columns`.

        `where` is a condition on properties, as in ``delete Person where …``, or a mapping from properties to a
        value or a list of values. `params` has the values of its variables. `order_by` is a property name or
        several, each optionally with ``desc``.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-nodes", schema="node City { name: String @key  inhabitants: I64? }")
        >>> _ = g.insert("City", [{"name": "Bern", "inhabitants": 134_000}, {"name": "Chur"}])
        >>> g.nodes("City", "inhabitants > $n", {"n": 100_000})
        id   | inhabitants | name
        -----+-------------+-----
        Bern |      134000 | Bern
        1 row
        >>> g.nodes("City", {"name": ["Bern", "Chur"]}, columns=["name"], order_by="name desc")["name"]
        ['Chur', 'Bern']
        """
        return self._typed("node", type_name, where, params, columns, order_by, limit, branch, at)

    def edges(
        self,
        type_name: str,
        where: Where = None,
        params: Mapping[str, Any] | None = None,
        *,
        columns: Sequence[str] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
        branch: str = "main",
        at: At = None,
    ) -> Result:
        """Return the edges of a type: ``id``, ``from``, ``to`` and all properties except Blobs, or only `columns`.

        The arguments are those of `nodes`.

        >>> import omnigraph as og
        >>> schema = "node City { name: String @key }  edge Road: City -> City { km: I32 }"
        >>> g = og.init("memory://docs-edges", schema=schema)
        >>> _ = g.load({
        ...     "City": [{"name": "Bern"}, {"name": "Chur"}],
        ...     "Road": [{"from": "Bern", "to": "Chur", "km": 243}],
        ... })
        >>> g.edges("Road", columns=["from", "to", "km"]).rows()
        [{'from': 'Bern', 'to': 'Chur', 'km': 243}]
        """
        return self._typed("edge", type_name, where, params, columns, order_by, limit, branch, at)

    def frame(
        self,
        type_name: str,
        where: Where = None,
        params: Mapping[str, Any] | None = None,
        *,
        columns: Sequence[str] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
        branch: str = "main",
        at: At = None,
        library: FrameLibrary = "pandas",
    ) -> Any:
        """Return the rows of a node or edge type as a data frame of pandas or polars, or as an Arrow table.

        The other arguments are those of `nodes`.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-frame", schema="node City { name: String @key  inhabitants: I64? }")
        >>> _ = g.insert("City", {"name": "Bern", "inhabitants": 134_000})
        >>> g.frame("City", columns=["name", "inhabitants"])
           name  inhabitants
        0  Bern       134000
        """
        if library not in ("pandas", "polars", "arrow"):
            raise InvalidInput(f"expected 'pandas', 'polars' or 'arrow' as `library`, got {library!r}")
        from omnigraph.read.entity import named_table

        table = named_table(self._snapshot(branch, at).catalog, type_name)
        found = self._typed(table.kind, table.name, where, params, columns, order_by, limit, branch, at)
        match library:
            case "pandas":
                return found.to_pandas()
            case "polars":
                return found.to_polars()
        return found.table

    def _typed(
        self,
        kind: TypeKind,
        type_name: str,
        where: Where,
        params: Mapping[str, Any] | None,
        columns: Sequence[str] | None,
        order_by: str | Sequence[str],
        limit: int | None,
        branch: str,
        at: At,
    ) -> Result:
        from omnigraph.lang.gq.type_query import ENTITY, is_entity_read, type_query

        check_limit(limit)
        keys = [order_by] if isinstance(order_by, str) else list(order_by)
        text = type_query(kind, type_name, where, params, columns, keys, limit)
        found = self._query(text, QueryOptions(branch=branch, at=at))
        if not is_entity_read(kind, columns):
            return found
        found = found.unnest(ENTITY)
        return found if columns is None else found.select(columns)

    @abstractmethod
    def _query(self, text: str, options: QueryOptions) -> Result: ...

    @abstractmethod
    def _snapshot(self, branch: str, at: At) -> Snapshot: ...
