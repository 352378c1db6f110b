"""Rows of a read as column sources for the expression evaluator."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from omnigraph.engine.arrow_expressions import ColumnSource, RowRef, evaluate
from omnigraph.engine.memory.cached_table import CachedTable, Ordinals
from omnigraph.lang import ir
from omnigraph.read.binding_table import BindingTable
from omnigraph.read.read_session import ReadSession
from omnigraph.search.text_search import TextSearch, has_operators, max_edits, text_fields


@dataclass(frozen=True)
class BindingSource:
    """The rows of a binding table."""

    session: ReadSession
    rows: BindingTable

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self.rows.num_rows

    def column(self, ref: RowRef) -> pa.Array:
        """Return the values of a reference, null where its variable is null."""
        assert not isinstance(ref, ir.ColumnRef)
        return self.session.variables[ref.variable].values(_name(ref), self.rows.columns[ref.variable])

    def search(self, match: ir.TextMatch) -> pa.Array:
        """Return which rows match a text search, null where there is no text."""
        variable = match.field.variable
        return _search(
            self.session, self.session.variables[variable], match, self, self.rows.columns[variable]
        )


@dataclass(frozen=True)
class TableSource:
    """All positions of one table, for predicates on a single variable. Unused positions are among them."""

    session: ReadSession
    table: CachedTable

    @property
    def num_rows(self) -> int:
        """The number of positions."""
        return self.table.numbers.size

    def column(self, ref: RowRef) -> pa.Array:
        """Return a whole column."""
        assert not isinstance(ref, ir.ColumnRef)
        return self.table.column(_name(ref))

    def search(self, match: ir.TextMatch) -> pa.Array:
        """Return which rows match a text search, null where there is no text."""
        return _search(self.session, self.table, match, self, None)


@dataclass(frozen=True)
class RowsSource:
    """Some rows of one table, by position."""

    session: ReadSession
    table: CachedTable
    ordinals: Ordinals

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self.ordinals)

    def column(self, ref: RowRef) -> pa.Array:
        """Return the values of a column at the positions."""
        assert not isinstance(ref, ir.ColumnRef)
        return self.table.values(_name(ref), self.ordinals)

    def search(self, match: ir.TextMatch) -> pa.Array:
        """Return which rows match a text search, null where there is no text."""
        return _search(self.session, self.table, match, self, self.ordinals)


def _name(ref: ir.PropertyRef | ir.EntityRef) -> str:
    return "id" if isinstance(ref, ir.EntityRef) else ref.property


def _search(
    session: ReadSession,
    table: CachedTable,
    match: ir.TextMatch,
    source: ColumnSource,
    ordinals: Ordinals | None,
) -> pa.Array:
    queries = evaluate(match.query, source, session.bindings)
    fields = text_fields(table, match.fields)
    search = TextSearch(match.fn, fields, max_edits(match, session.bindings), has_operators(match))
    return search.rows(queries, ordinals)
