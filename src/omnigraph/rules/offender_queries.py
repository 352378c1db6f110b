"""Queries over keys for the records of a load that a quarantine leaves out.

The violations of a rule are stored as a table of offenders, which has the position of each record. The other
records are an anti-join by position, so no key leaves the engine that compares them.

>>> print(without("new_7", "offenders_1").sql("duckdb"))
SELECT a.* FROM new_7 AS a WHERE NOT EXISTS(SELECT 1 FROM offenders_1 AS b WHERE b.position = a.position)
"""

from __future__ import annotations

from functools import cache

from sqlglot import exp
from sqlglot.expressions import Select, alias_, and_, column, condition, func, not_, select, table_

from omnigraph.rules.load_mode import LoadMode
from omnigraph.rules.set_queries import (
    HOLDER,
    PLACE,
    POSITION,
    SOURCE,
    TOTAL,
    VALUE,
    committed_keys,
    new_keys,
)


def located(offenders: str, keys: str) -> Select:
    """Select the offenders with the places and sources of their records, by position.

    `keys` is the key table of the records.
    """
    return (
        select("a.*", column(PLACE, "b"), column(SOURCE, "b"))
        .from_(table_(offenders, alias="a"))
        .join(table_(keys, alias="b"), on=column(POSITION, "a").eq(column(POSITION, "b")))
        .order_by(column(POSITION, "a"))
    )


def count(offenders: str) -> Select:
    """Count the offenders."""
    return select(alias_(func("COUNT", exp.Star()), TOTAL)).from_(table_(offenders))


def everything(offenders: str) -> Select:
    """Select the offenders."""
    return select(exp.Star()).from_(table_(offenders))


def without(keys: str, offenders: str) -> Select:
    """Select the keys whose position is not that of an offender."""
    same = column(POSITION, "b").eq(column(POSITION, "a"))
    found = exp.Exists(this=select("1").from_(table_(offenders, alias="b")).where(same))
    return select("a.*").from_(table_(keys, alias="a")).where(not_(found))


@cache
def cardinality_offenders(
    edge: int, wrong: str, mode: LoadMode, least: int, most: int | None, *, by_id: bool = False
) -> Select:
    """Select the records to leave out so that no source has too many or too few edges.

    `wrong` is the table of the sources with a wrong number of edges. Of too many edges the first ones stay, those
    that replace a committed edge of the source before all others. Of too few edges none stays, and an edge that
    would move away from the source stays there. The records are in input order, or with `by_id` in the order of
    their ids.
    """
    few = (
        select(*_record("a"), *_source("w"))
        .from_(table_(new_keys(edge), alias="a"))
        .join(table_(wrong, alias="w"), on=column("src", "a").eq(column("id", "w")))
        .where(condition(column(VALUE, "w")) < least)
    )
    found: exp.Query = few
    if mode == "merge":
        moved = (
            select(*_record("a"), *_source("w"))
            .from_(table_(new_keys(edge), alias="a"))
            .join(table_(committed_keys(edge), alias="c"), on=column("id", "a").eq(column("id", "c")))
            .join(table_(wrong, alias="w"), on=column("src", "c").eq(column("id", "w")))
            .where(condition(column(VALUE, "w")) < least, column("src", "a").neq(column("src", "c")))
        )
        found = found.union(moved, distinct=False)
    if most is not None:
        found = found.union(_excess(edge, wrong, mode, most, by_id=by_id), distinct=False)
    return select(exp.Star()).from_(found.subquery("violations"))


def _excess(edge: int, wrong: str, mode: LoadMode, most: int, *, by_id: bool) -> Select:
    """Select the last records of each source with more edges than `most`."""
    order: list[exp.Expr] = [column("id" if by_id else POSITION, "a")]
    keys: exp.Table | exp.Subquery = table_(new_keys(edge), alias="a")
    if mode == "merge":
        same = and_(column("id", "c").eq(column("id", "a")), column("src", "c").eq(column("src", "a")))
        is_new = exp.Case().when(column("id", "c").is_(exp.null()), "1").else_("0")
        keys = (
            select(*_record("a"), column("src", "a"), alias_(is_new, "is_new"))
            .from_(keys)
            .join(table_(committed_keys(edge), alias="c"), on=same, join_type="left")
            .subquery("a")
        )
        order.insert(0, column("is_new", "a"))
    source = [column("src", "a")]
    rank = exp.Window(
        this=exp.RowNumber(),
        partition_by=source,
        order=exp.Order(expressions=[exp.Ordered(this=item) for item in order]),
    )
    records = exp.Window(this=func("COUNT", exp.Star()), partition_by=[item.copy() for item in source])
    ranked = (
        select(*_record("a"), *_source("w"), alias_(rank, "rank"), alias_(records, "records"))
        .from_(keys)
        .join(table_(wrong, alias="w"), on=column("src", "a").eq(column("id", "w")))
        .where(condition(column(VALUE, "w")) > most)
    )
    kept = condition(column(VALUE)) - column("records")
    return (
        select(*map(column, ("id", POSITION, HOLDER, VALUE)))
        .from_(ranked.subquery("ranked"))
        .where(kept + column("rank") > most)
    )


def _record(alias: str) -> list[exp.Expr]:
    return [column("id", alias), column(POSITION, alias)]


def _source(alias: str) -> list[exp.Expr]:
    return [alias_(column("id", alias), HOLDER), alias_(column(VALUE, alias), VALUE)]
