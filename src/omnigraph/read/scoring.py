"""Resolve the rankings of a query and score matched rows by them."""

from __future__ import annotations

from omnigraph.errors import InvalidInput
from omnigraph.lang import ir
from omnigraph.read.binding_table import BindingTable
from omnigraph.read.read_session import ReadSession
from omnigraph.search.rank_fusion import check_depth, check_k
from omnigraph.search.ranking import (
    Ranking,
    RowScores,
    TextRanking,
    VectorRanking,
    contribution,
    fuse,
    score,
)
from omnigraph.search.text_search import text_fields
from omnigraph.search.vector_search import (
    SearchPath,
    SearchSettings,
    VectorSearch,
)


def score_rows(
    session: ReadSession, rank: ir.Rank, rows: BindingTable, count: int | None = None
) -> RowScores:
    """Return the score of every row.

    With `count`, only that many best rows are needed, and all with the same score as the last of them. Others may
    be left out of the ranking.
    """
    if isinstance(rank, ir.Rrf):
        k = check_k(session.constant(rank.k))
        depth = check_depth(session.constant(rank.depth))
        parts = [
            contribution(_ranking(session, part), rows.columns[part.field.variable], rank.fn, k, depth)
            for part in rank.ranks
        ]
        return fuse(parts, rank.weights)
    return score(_ranking(session, rank), rows.columns[rank.field.variable], count)


def search_path(session: ReadSession, rank: ir.Nearest, candidates: int) -> tuple[SearchPath, SearchSettings]:
    """Return how the nearest of so many candidates are searched. The query vector is not read."""
    settings = search_settings(session, rank.options)
    table = session.variables[rank.field.variable]
    query = (1.0,) * table.vector_dimension(rank.field.property)
    search = VectorSearch(table, rank.field.property, query, rank.metric, settings)
    return search.path(candidates), settings


def search_settings(session: ReadSession, options: ir.SearchOptions) -> SearchSettings:
    """Return the values of the options of a search. A null is the default.

    Raises `InvalidInput` for a number below 1.
    """
    exact = False if options.exact is None else session.constant(options.exact)
    return SearchSettings(
        exact is True,
        _positive(session, "nprobes", options.nprobes),
        _positive(session, "refine", options.refine),
    )


def _positive(session: ReadSession, name: str, option: ir.Expr | None) -> int | None:
    value = None if option is None else session.constant(option)
    if value is None:
        return None
    if not isinstance(value, int) or value < 1:
        raise InvalidInput(f"`{name}` must be a positive integer, got {value}")
    return value


def _ranking(session: ReadSession, rank: ir.Nearest | ir.Bm25) -> Ranking:
    table = session.variables[rank.field.variable]
    if isinstance(rank, ir.Bm25):
        return TextRanking(table, text_fields(table, rank.fields), session.text(rank.query))
    settings = search_settings(session, rank.options)
    return VectorRanking(table, rank.field.property, session.vector(rank.query), rank.metric, settings)
