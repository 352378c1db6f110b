"""Resolve the rankings of a query and score matched rows by them."""

from __future__ import annotations

from omnigraph.lang import ir
from omnigraph.read.binding_table import BindingTable
from omnigraph.read.read_session import ReadSession
from omnigraph.search.rank_fusion import check_k
from omnigraph.search.ranking import Ranking, RowScores, fuse


def score_rows(session: ReadSession, rank: ir.Rank, rows: BindingTable) -> RowScores:
    """Return the score of every row."""
    match rank:
        case ir.Nearest() | ir.Bm25():
            return _ranking(session, rank).score(rows.columns[rank.field.variable])
        case ir.Rrf():
            k = check_k(session.constant(rank.k))
            first, second = (
                _ranking(session, part).reciprocal_rank(rows.columns[part.field.variable], k)
                for part in (rank.first, rank.second)
            )
            return fuse(first, second)


def _ranking(session: ReadSession, rank: ir.Nearest | ir.Bm25) -> Ranking:
    table, name = session.variables[rank.field.variable], rank.field.property
    if isinstance(rank, ir.Bm25):
        return Ranking(table, name, session.text(rank.query), analysis=rank.analysis)
    return Ranking(table, name, session.vector(rank.query), rank.metric)
