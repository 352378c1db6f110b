"""Set rules as SQL queries over keys, for loads that do not fit in memory.

A query reads key tables only: the keys of the records of a load (`new_keys`) and the keys of committed rows
(`committed_keys`). It returns the first violations by id, so the result is bounded; `count_query` returns the
number of all violations. A query is a sqlglot expression, which DuckDB and Spark render in their dialect. It is
built once and must not be modified.

>>> print(count_replaced(7).sql("spark"))
SELECT COUNT(*) AS total FROM committed_7 AS a WHERE EXISTS(SELECT 1 FROM new_7 AS b WHERE b.id = a.id)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from sqlglot import exp
from sqlglot.expressions import Condition, Select, alias_, and_, column, condition, func, not_, select, table_

from omnigraph.rules.load_mode import WriteMode
from omnigraph.rules.violations import MAX_REPORTED

# Columns of key tables: the position of a record in the input of its table, its line or row, the number of its
# source file, and the row address of a committed row.
POSITION = "position"
PLACE = "place"
SOURCE = "source"
ADDRESS = "address"
# Columns of results: the id of the row that has a value already, the values, and the number of violations.
HOLDER = "holder"
VALUE = "value"
TOTAL = "total"


def input_keys(table: int) -> str:
    """Return the name of the table with the keys of all input records, before the last of each id is selected."""
    return f"input_{table}"


def new_keys(table: int) -> str:
    """Return the name of the table with the keys that a load writes. `table` is the identity of a catalog table."""
    return f"new_{table}"


def committed_keys(table: int) -> str:
    """Return the name of the table with the keys of committed rows."""
    return f"committed_{table}"


def vacated_sources(table: int) -> str:
    """Return the name of the table with the sources of deleted edges."""
    return f"vacated_{table}"


def _first_violations(violations: Select) -> Select:
    """Return a query for the first rows of a query, by id."""
    ordered = ["id", *(item for item in violations.named_selects if item != "id")]
    return (
        select(exp.Star())
        .from_(violations.subquery("violations", copy=False), copy=False)
        .order_by(*(exp.Ordered(this=column(name)) for name in ordered))
        .limit(MAX_REPORTED)
    )


def count_query(rule: Select) -> Select:
    """Return a query for the number of violations of a rule. It is much cheaper than the rule if there are none.

    >>> print(count_query(existing_ids(7)).sql("duckdb")[:36])
    SELECT COUNT(*) AS total FROM (SELEC
    """
    return select(alias_(func("COUNT", exp.Star()), TOTAL)).from_(_violations(rule).copy())


def all_violations(rule: Select) -> Select:
    """Return a query for all violations of a rule, in any order.

    >>> print(all_violations(existing_ids(7)).sql("duckdb")[:43])
    SELECT * FROM (SELECT a.id, a.position FROM
    """
    return select(exp.Star()).from_(_violations(rule).copy())


def _violations(rule: Select) -> exp.Subquery:
    return next(item for item in rule.find_all(exp.Subquery) if item.alias == "violations")


# --- superseded records and replaced rows -------------------------------------------------------------------


@cache
def superseded_positions(table: int) -> Select:
    """Select the positions of input records that a later record with the same id supersedes, ascending."""
    last = (
        select(column("id"), alias_(func("MAX", column(POSITION)), "last"))
        .from_(table_(input_keys(table)))
        .group_by(column("id"))
        .having(condition(func("COUNT", exp.Star())) > 1)
    )
    return (
        select(column(POSITION, "a"))
        .from_(table_(input_keys(table), alias="a"))
        .join(last.subquery("b"), on=column("id", "a").eq(column("id", "b")))
        .where(column(POSITION, "a") < column("last", "b"))
        .order_by(column(POSITION, "a"))
    )


@cache
def last_records(table: int) -> Select:
    """Select the keys of the last input record of each id."""
    # By position: a self-join on the id is quadratic in the number of records with one id.
    last = select(func("MAX", column(POSITION))).from_(table_(input_keys(table))).group_by(column("id"))
    chosen = exp.In(this=column(POSITION, "a"), query=last.subquery())
    return select("*").from_(table_(input_keys(table), alias="a")).where(chosen)


@cache
def replaced_addresses(table: int) -> Select:
    """Select the addresses of the committed rows that the load replaces."""
    return (
        select(column(ADDRESS, "a")).from_(_committed(table)).where(_has(new_keys(table), column("id", "a")))
    )


@cache
def count_replaced(table: int) -> Select:
    """Count the committed rows that the load replaces."""
    counted = alias_(func("COUNT", exp.Star()), TOTAL)
    return select(counted).from_(_committed(table)).where(_has(new_keys(table), column("id", "a")))


def distinct_values(keys: str, name: str) -> Select:
    """Select the distinct values of a column of a key table."""
    return select(column(name)).distinct().from_(table_(keys))


def origins(table: int, ids: Iterable[str]) -> Select:
    """Select the places and sources of the records with these ids, in input order."""
    wanted = exp.In(this=column("id"), expressions=[exp.Literal.string(item) for item in ids])
    chosen = [column(name) for name in ("id", PLACE, SOURCE)]
    return select(*chosen).from_(table_(new_keys(table))).where(wanted).order_by(column(POSITION))


def origins_at(keys: str, positions: Iterable[int]) -> Select:
    """Select the places and sources of the records at these positions of a key table."""
    wanted = exp.In(this=column(POSITION), expressions=[exp.Literal.number(item) for item in positions])
    chosen = [column(name) for name in (POSITION, PLACE, SOURCE)]
    return select(*chosen).from_(table_(keys)).where(wanted)


# --- ids and unique values ----------------------------------------------------------------------------------


@cache
def existing_ids(table: int) -> Select:
    """Select the records whose id a committed row has."""
    existing = (
        select(column("id", "a"), column(POSITION, "a"))
        .from_(_new(table))
        .where(_has(committed_keys(table), column("id", "a")))
    )
    return _first_violations(existing)


@cache
def duplicate_values(
    table: int,
    columns: tuple[str, ...],
    *,
    kept: bool,
    superseded: bool = False,
    by_id: bool = False,
    wrong: str | None = None,
) -> Select:
    """Select the records with the values of a committed row, or of an earlier record of the input.

    With `kept` the committed rows that the load does not replace are compared too. With `superseded` all input
    records are compared, also those that a later record supersedes. With `by_id` the keys have no positions, and
    records are in the order of their ids.

    `wrong` is a table of the violations of this query without it. Then only their values are compared, and a record
    whose committed row has the values comes before all other records: if it were left out, that row would return
    and take the values again.
    """
    keys = table_(input_keys(table), alias="a") if superseded else _new(table)
    position: exp.Expr = exp.Literal.number(0) if by_id else column(POSITION, "a")
    everything: exp.Query = _tuples(keys, columns, position, fresh=1)
    if kept:
        zero = exp.cast(exp.Literal.number(0), "BIGINT")
        committed = _tuples(_committed(table), columns, zero, fresh=0).where(
            not_(_has(new_keys(table), column("id", "a")))
        )
        everything = everything.union(committed, distinct=False)
    names = [f"{VALUE}{number}" for number in range(len(columns))]
    order: list[exp.Expr] = [column(name, "every") for name in ("fresh", POSITION, "id")]
    if wrong is None:
        suspects = (
            select(*map(column, names))
            .from_(everything.subquery("every"))
            .group_by(*map(column, names))
            .having(condition(func("COUNT", exp.Star())) > 1)
        )
    else:
        suspects = select(*map(column, names)).distinct().from_(table_(wrong))
        order.insert(1, column("id", "stored").is_(exp.null()))
    same = and_(*(column(name, "every").eq(column(name, "suspects")) for name in names))
    ranked = (
        select(
            *(column(name, "every") for name in ("id", POSITION, *names, "fresh")),
            _first(column("id", "every"), names, order, HOLDER),
            _first(None, names, order, "rank"),
        )
        .from_(everything.subquery("every"))
        .join(suspects.subquery("suspects"), on=same)
    )
    if wrong is not None:
        pairs = zip(("id", *columns), ("id", *names), strict=True)
        is_stored = and_(*(column(name, "stored").eq(column(of, "every")) for name, of in pairs))
        ranked = ranked.join(
            table_(committed_keys(table), alias="stored"), on=is_stored, join_type="left", copy=False
        )
    duplicates = select(*map(column, ("id", POSITION, *names, HOLDER))).from_(ranked.subquery("ranked"))
    return _first_violations(duplicates.where(column("fresh").eq(1), condition(column("rank")) > 1))


def _tuples(source: exp.Table, columns: Sequence[str], position: exp.Expr, *, fresh: int) -> Select:
    values = [alias_(column(name, "a"), f"{VALUE}{number}") for number, name in enumerate(columns)]
    present = [not_(column(name, "a").is_(exp.null())) for name in columns]
    mark = alias_(exp.Literal.number(fresh), "fresh")
    place = alias_(position, POSITION)
    return select(column("id", "a"), place, *values, mark).from_(source).where(*present)


def _first(value: exp.Column | None, names: Sequence[str], order: Sequence[exp.Expr], alias: str) -> exp.Expr:
    """Return a window over the rows with equal values, in this order."""
    window = exp.Window(
        this=exp.RowNumber() if value is None else exp.FirstValue(this=value),
        partition_by=[column(name, "every") for name in names],
        order=exp.Order(expressions=[exp.Ordered(this=item.copy()) for item in order]),
    )
    return alias_(window, alias)


# --- endpoints ----------------------------------------------------------------------------------------------


@cache
def missing_endpoints(edge: int, end: str, nodes: tuple[str, ...]) -> Select:
    """Select new edges whose end is in none of the tables of node keys."""
    return _ends(_new(edge), end, nodes, column(POSITION, "a"))


@cache
def orphaned_endpoints(edge: int, end: str, node: int) -> Select:
    """Select committed edges whose node an overwrite of its type removes."""
    return _ends(_committed(edge), end, (new_keys(node),))


def _ends(edges: exp.Table, end: str, nodes: Sequence[str], *more: exp.Column) -> Select:
    missing = [not_(_has(name, column(end, "a"))) for name in nodes]
    chosen = (column("id", "a"), alias_(column(end, "a"), VALUE), *more)
    return _first_violations(select(*chosen).from_(edges).where(*missing))


# --- cardinality --------------------------------------------------------------------------------------------


@cache
def cardinality_violations(
    edge: int,
    mode: WriteMode,
    replaced: int | None,
    least: int,
    most: int | None,
    *,
    has_vacated: bool = False,
) -> Select:
    """Select the sources whose edges the load changes and whose number of edges is then outside the bounds.

    `replaced` is the table of the sources when an overwrite replaces it too: a source that it removes may have no
    edges. With `has_vacated` the sources of deleted edges are in a table of their own.
    """
    changed: exp.Query = _counted(_new(edge), 1)
    if mode == "merge":
        before = _counted(_committed(edge), 0).where(_has(new_keys(edge), column("id", "a")))
        changed = changed.union(before, distinct=False)
    elif mode == "overwrite":
        before = _counted(_committed(edge), 0)
        if replaced is not None:
            before = before.where(_has(new_keys(replaced), column("src", "a")))
        changed = changed.union(before, distinct=False)
    if has_vacated:
        gone = _counted(table_(vacated_sources(edge), alias="a"), 0)
        changed = changed.union(gone, distinct=False)
    everything = changed
    if mode != "overwrite":
        names = select(column("src")).distinct().from_(changed.subquery("sources"))
        kept = _counted(_committed(edge), 1).where(
            not_(_has(new_keys(edge), column("id", "a"))),
            exp.In(this=column("src", "a"), query=names.subquery()),
        )
        everything = changed.union(kept, distinct=False)
    count = func("SUM", column("edges"))
    wrong: Condition = condition(count) < least
    if most is not None:
        wrong = wrong.or_(condition(count) > most)
    sources = select(alias_(column("src"), "id"), alias_(exp.cast(count, "BIGINT"), VALUE))
    return _first_violations(
        sources.from_(everything.subquery("changes")).group_by(column("src")).having(wrong)
    )


def _counted(source: exp.Table, edges: int) -> Select:
    return select(column("src", "a"), alias_(exp.Literal.number(edges), "edges")).from_(source)


# --- tables and conditions ----------------------------------------------------------------------------------


def _new(table: int) -> exp.Table:
    return table_(new_keys(table), alias="a")


def _committed(table: int) -> exp.Table:
    return table_(committed_keys(table), alias="a")


def _has(keys: str, id_: exp.Column) -> exp.Exists:
    """Return the condition that a key table has an id."""
    return exp.Exists(this=select("1").from_(table_(keys, alias="b")).where(column("id", "b").eq(id_)))
