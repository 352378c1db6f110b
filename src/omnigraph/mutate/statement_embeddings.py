"""The vectors of the texts that a mutation assigns. All of them are computed before its first statement applies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.catalog.catalog import Catalog, table_key
from omnigraph.engine.parameters import Bindings
from omnigraph.errors import OmnigraphError
from omnigraph.lang import ir
from omnigraph.lang.schema import Embed, EmbeddedProperty
from omnigraph.search.embeddings.embedding_records import embedding_record, record_array
from omnigraph.search.embeddings.row_embeddings import embedded_properties, located
from omnigraph.search.embeddings.vector_computation import VectorComputation


class StatementEmbeddings:
    """The computed vectors of one mutation. A vector that a statement assigns is kept."""

    def __init__(self, catalog: Catalog, bindings: Bindings, vectors: VectorComputation | None) -> None:
        self._catalog = catalog
        self._bindings = bindings
        self._vectors = vectors or VectorComputation(None)
        self._computed: dict[tuple[Embed, int, str], npt.NDArray[np.float32]] = {}

    def compute(self, query: ir.MutationQuery) -> None:
        """Compute the vectors of all texts that the statements assign without a vector, in batches.

        Raises the errors of the provider.
        """
        texts: dict[tuple[str, str], dict[str, None]] = {}
        properties: dict[tuple[str, str], EmbeddedProperty] = {}
        for key, values in self._assigned(query):
            for item in self._of(key):
                text = values.get(item.embed.source)
                if isinstance(text, str) and values.get(item.name) is None:
                    texts.setdefault((key, item.name), {})[text] = None
                    properties[key, item.name] = item
        for place, of_property in texts.items():
            item, given = properties[place], list(of_property)
            dim = item.vector.type.dim or 0
            try:
                vectors = self._vectors.compute(item.embed, dim, given)
            except OmnigraphError as error:
                raise located(error, self._catalog.tables[place[0]], item) from error
            for text, vector in zip(given, vectors, strict=True):
                self._computed[item.embed, dim, text] = vector

    def with_vectors(self, key: str, values: Mapping[str, ir.Value]) -> dict[str, ir.Value]:
        """Return the values of a statement with the vectors of its texts, and with their records."""
        complete = dict(values)
        for item in self._of(key):
            if item.embed.source not in values:
                continue
            text = values[item.embed.source]
            if not isinstance(text, str):
                if values.get(item.name) is None:
                    complete[item.name] = complete[item.record] = None
                continue
            if values.get(item.name) is None:
                vector = self._computed[item.embed, item.vector.type.dim or 0, text]
                complete[item.name] = tuple(vector.tolist())
            elif values.get(item.record) is not None:
                continue
            complete[item.record] = embedding_record(item.embed, text)
        return complete

    def with_records(self, key: str, values: Mapping[str, ir.Value], rows: pa.Table) -> pa.Table:
        """Return updated rows with the records of the vectors that the statement assigns without a text."""
        for item in self._of(key):
            if item.name not in values or item.embed.source in values or values.get(item.record) is not None:
                continue
            if values[item.name] is None:
                records = pa.nulls(rows.num_rows, pa.string())
            else:
                records = record_array(item.embed, rows[item.embed.source].to_pylist())
            place = rows.column_names.index(item.record)
            rows = rows.set_column(place, item.record, records)
        return rows

    def _of(self, key: str) -> tuple[EmbeddedProperty, ...]:
        return embedded_properties(self._catalog, self._catalog.tables[key])

    def _assigned(self, query: ir.MutationQuery) -> Iterator[tuple[str, dict[str, ir.Value]]]:
        """Yield the table and the values of each statement that assigns properties of a node."""
        for statement in query.statements:
            if isinstance(statement, ir.InsertNode | ir.UpdateNode):
                key = table_key("node", statement.type_name)
                if self._of(key):
                    yield key, {item.property: self._value(item.value) for item in statement.assigns}

    def _value(self, expr: ir.Expr) -> ir.Value:
        assert isinstance(expr, ir.Const | ir.ParamRef | ir.Now), "a mutation assigns values that need no row"
        return self._bindings.value(expr)
