"""The methods of `Graph` that read rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.api.files.export_files import ExportFormat, ExportOptions, ExportTarget, check_export
from omnigraph.api.files.local_files import read_query
from omnigraph.api.results.commits import At
from omnigraph.budget.query_budget import NO_LIMITS, QueryLimits
from omnigraph.engine.engine_choice import Engine
from omnigraph.errors import InvalidInput
from omnigraph.graph.progress import Progress

if TYPE_CHECKING:
    from omnigraph.api.results.blobs import Blob, BlobSelector
    from omnigraph.api.results.result import Result
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.read.neighbors import NeighborDirection, NeighborRequest


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """The arguments of `Graph.query`, `Graph.dataframe` and `Graph.explain` besides the text."""

    params: Mapping[str, Any] | None = None
    name: str | None = None
    branch: str = "main"
    at: At = None
    engine: Engine = "auto"
    spark: Any = None
    limits: QueryLimits = NO_LIMITS


class GraphReads(ABC):
    """Queries, lookups by id, snapshots and exports."""

    def query(
        self,
        source: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: At = None,
        engine: Engine = "auto",
        spark: Any = None,
        timeout: float | None = None,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        max_edges: int | None = None,
    ) -> Result:
        """Run a read query on one consistent state.

        The state is the head of `branch`, or the commit, snapshot or time `at`. `source` is query text or a `Path`;
        `name` selects one query if the text has several. ``engine="spark"`` runs the query on Spark with the same
        result; ``"auto"`` uses Spark for hundreds of millions of rows. `spark` is described in `load`.

        The query fails with `ResourceLimit` after `timeout` seconds, before it takes more than about `max_bytes` of
        memory, before it follows more than `max_edges` edges, and if its result has more than `max_rows` rows. A
        server has limits of its own, which a request can only lower. Spark ignores these limits.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-query", schema="node City { name: String @key  inhabitants: I64? }")
        >>> _ = g.mutate('query add() { insert City { name: "Bern", inhabitants: 134000 } }')
        >>> big = "query big($n: I64) { match { $c: City  $c.inhabitants > $n } return { $c.name } }"
        >>> g.query(big, {"n": 100_000}).rows()
        [{'c.name': 'Bern'}]
        >>> len(g.query(big, {"n": 0}, max_rows=10, timeout=5))
        1
        """
        limits = QueryLimits(timeout, max_rows, max_bytes, max_edges)
        return self._query(read_query(source), QueryOptions(params, name, branch, at, engine, spark, limits))

    def dataframe(
        self,
        source: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: At = None,
        spark: Any = None,
    ) -> Any:
        """Return the rows of a read query as a Spark DataFrame.

        The rows are those of the state, the parameters and the ``now()`` of this call, whenever Spark computes
        them. They are in order if the query has an order. The DataFrame belongs to the session `spark`, which is
        described in `load`.
        """
        return self._dataframe(read_query(source), QueryOptions(params, name, branch, at, spark=spark))

    def explain(
        self,
        source: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: At = None,
    ) -> str:
        """Return the plan of a read query as text: scans with pushed-down filters, and how edges are expanded."""
        return self._explain(read_query(source), QueryOptions(params, name, branch, at))

    def get(
        self,
        type_name: str,
        id: str | int,  # noqa: A002 - the name is part of the API
        *,
        branch: str = "main",
        at: At = None,
    ) -> dict[str, Any] | None:
        """Return one node or edge by its id, or None: its id, all properties, and ``from`` and ``to`` of an edge.

        An integer key may be given as an int.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-get", schema="node City { name: String @key  founded: Date? }")
        >>> _ = g.mutate('query add() { insert City { name: "Bern", founded: date("1191-01-01") } }')
        >>> g.get("City", "Bern")
        {'id': 'Bern', 'founded': '1191-01-01', 'name': 'Bern'}
        """
        from omnigraph.catalog.keys import id_text

        return self._get(type_name, id_text(id), branch, at)

    def neighbors(
        self,
        type_name: str,
        id: str | int,  # noqa: A002 - the name is part of the API
        *,
        edges: Sequence[str] | None = None,
        direction: NeighborDirection = "both",
        limit: int = 100,
        branch: str = "main",
        at: At = None,
    ) -> dict[str, Any]:
        """Return the edges of a node and the nodes at their other ends, at most `limit` of each type and direction.

        `edges` restricts them to some edge types. ``counts`` has the number of edges of each type and direction.
        Blobs and vectors are left out. Raises `NotFound` if there is no such node.

        >>> import omnigraph as og
        >>> schema = "node City { name: String @key }  edge Road: City -> City"
        >>> g = og.init("memory://docs-neighbors", schema=schema)
        >>> rows = {"City": [{"name": "Bern"}, {"name": "Thun"}], "Road": [{"from": "Bern", "to": "Thun"}]}
        >>> _ = g.load(rows)
        >>> found = g.neighbors("City", "Bern", direction="out")
        >>> found["neighbors"][0]["node"]
        {'type': 'City', 'id': 'Thun', 'properties': {'name': 'Thun'}}
        >>> found["counts"]
        [{'edge': 'Road', 'direction': 'out', 'count': 1}]
        """
        from omnigraph.catalog.keys import id_text
        from omnigraph.read.neighbors import NeighborRequest

        if direction not in ("out", "in", "both"):
            raise InvalidInput(f"`direction` must be out, in or both, got {direction!r}")
        if limit < 1:
            raise InvalidInput(f"`limit` must be at least 1, got {limit}")
        chosen = None if edges is None else tuple(edges)
        request = NeighborRequest(type_name, id_text(id), chosen, direction, limit)
        return self._neighbors(request, branch, at)

    def blob(
        self,
        type_name: str,
        id: str | int,  # noqa: A002 - the name is part of the API
        property: str,  # noqa: A002 - the name is part of the API
        *,
        branch: str = "main",
        at: At = None,
    ) -> Blob:
        """Open a Blob value as a read-only file: `size`, `read`, `seek` and `read_range`.

        `type_name` is a node or edge type. Opening reads metadata only, and a read holds in memory no more than it
        returns. A remote graph requests byte ranges, and raises `PreconditionFailed` if the value was written again
        after it was opened.

        Raises `InvalidInput` if the schema has no such property, and `NotFound` if there is no such entity or it
        has no value. The bytes of an external value are not read; `uri` is its address.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-open-blob", schema="node Photo { name: String @key  data: Blob? }")
        >>> _ = g.load({"Photo": [{"name": "a", "data": bytes(range(100))}]})
        >>> blob = g.blob("Photo", "a", "data")
        >>> blob.seek(90), blob.read(3), blob.read_range(0, 2)
        (90, b'Z[\\\\', b'\\x00\\x01')
        """
        from omnigraph.api.results.blobs import BlobSelector
        from omnigraph.catalog.keys import id_text

        return self._blob(BlobSelector(type_name, id_text(id), property, branch, at))

    def snapshot(self, branch: str = "main", at: At = None) -> Snapshot:
        """Return the head of a branch, or the state `at`, as an immutable snapshot."""
        return self._snapshot(branch, at)

    def export(
        self,
        target: ExportTarget,
        *,
        branch: str = "main",
        at: At = None,
        types: Sequence[str] | None = None,
        progress: Progress | None = None,
        format: ExportFormat = "ndjson",  # noqa: A002 - the name is part of the API
        engine: Engine = "auto",
        spark: Any = None,
        overwrite: bool = False,
    ) -> int:
        """Write a state to a file, a text stream or a folder; return the number of records.

        The target is on disk or on ``s3://``. A file or a stream receives graph NDJSON in an order that depends
        only on the content. A file appears when it is complete. A target that is an existing folder, or a name
        that ends in ``/``, receives many files in no particular order, and ``_SUCCESS`` when all are complete. A
        folder that is not empty is refused, unless `overwrite` allows to replace an earlier export. `types`
        restricts the export to these node and edge types.

        ``format="parquet"`` always writes a folder: ``nodes/Person/part-00000.parquet``. With ``engine="spark"``
        Spark tasks write the files of a folder; ``"auto"`` uses Spark for very many rows. `spark` is described in
        `load`. `load` reads an export back without changes.
        """
        options = ExportOptions(branch, at, types, progress, format, engine, spark, overwrite)
        check_export(target, options)
        return self._export(target, options)

    @abstractmethod
    def _neighbors(self, request: NeighborRequest, branch: str, at: At) -> dict[str, Any]: ...

    @abstractmethod
    def _query(self, text: str, options: QueryOptions) -> Result: ...

    @abstractmethod
    def _dataframe(self, text: str, options: QueryOptions) -> Any: ...

    @abstractmethod
    def _explain(self, text: str, options: QueryOptions) -> str: ...

    @abstractmethod
    def _get(self, type_name: str, id_: str, branch: str, at: At) -> dict[str, Any] | None: ...

    @abstractmethod
    def _blob(self, selector: BlobSelector) -> Blob: ...

    @abstractmethod
    def _snapshot(self, branch: str, at: At) -> Snapshot: ...

    @abstractmethod
    def _export(self, target: ExportTarget, options: ExportOptions) -> int: ...
