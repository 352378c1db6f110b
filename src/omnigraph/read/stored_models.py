"""The models of the vectors that a table holds, for queries that rank by a text.

Vectors of two models cannot be compared. A table holds vectors of another model than the schema names only after a
change of the schema, so only then its records are read: once for each version of the table.
"""

from __future__ import annotations

import threading

import pyarrow.compute as pc
from cachetools import LRUCache

from omnigraph.catalog.catalog import table_key
from omnigraph.errors import InvalidInput
from omnigraph.graph.snapshot import Snapshot
from omnigraph.lang import ir
from omnigraph.lang.schema import embedding_record_name

_MAX_VERSIONS = 256


class StoredModels:
    """Checks the models of stored vectors. Thread-safe."""

    def __init__(self) -> None:
        self._found: LRUCache[tuple[str, int, str, tuple[str, ...]], str | None] = LRUCache(_MAX_VERSIONS)
        self._lock = threading.Lock()

    def check(self, snapshot: Snapshot, query: ir.EmbedText) -> None:
        """Raise `InvalidInput` if stored vectors are of another model than that of the query."""
        catalog = snapshot.catalog
        if not catalog.earlier_models or query.embed is None or query.embed.provider is None:
            return
        number = catalog.identities.of_property("node", query.owner, query.name).id
        earlier = dict(catalog.earlier_models).get(number)
        if earlier is None:
            return
        found = self._model_of(snapshot, query, earlier)
        if found is None:
            return
        full, model = f"{query.owner}.{query.name}", query.embed.recorded_model
        raise InvalidInput(
            f"the query embeds its text with the model '{model}', but '{full}' has vectors of the model '{found}'",
            details={"query_model": model, "stored_model": found, "property": full},
            hint="compute them again: omnigraph embed refresh, or g.embeddings.refresh()",
        )

    def _model_of(self, snapshot: Snapshot, query: ir.EmbedText, earlier: tuple[str, ...]) -> str | None:
        key = table_key("node", query.owner)
        pin = snapshot.pin(key)
        place = pin.path, pin.version, query.name, earlier
        with self._lock:
            if place in self._found:
                return self._found[place]
        column = snapshot.catalog.tables[key].physical(embedding_record_name(query.name))
        found = None
        for batch in snapshot.tables.scan_batches(pin, [column]):
            records = batch.column(column)
            present = [model for model in earlier if pc.any(pc.starts_with(records, f"{model} ")).as_py()]
            if present:
                found = present[0]
                break
        with self._lock:
            self._found[place] = found
        return found
