"""The rules between rows as queries over keys, for loads that are larger than memory.

Every query reads tables of keys alone: what a load brings to a table (`new_keys`) and what is committed in it
(`old_keys`). A rule answers with the first offenders by id, so that an answer is small whatever it says; `total_of`
asks for the number of all of them. A query is an expression, built once and not to be changed, and runs wherever
its dialect is spoken.

>>> print(count_rewritten(7).sql("spark"))
SELECT COUNT(*) AS total FROM old_7 AS a WHERE EXISTS(SELECT 1 FROM new_7 AS b WHERE b.id = a.id)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from sqlglot import exp
from sqlglot.expressions import Condition, Select, alias_, and_, column, condition, func, not_, select, table_

from omnigraph.rules.load_mode import LoadMode
from omnigraph.rules.violations import REPORTED

# The position of a record in the input of its table, where it came from, and where a committed row is stored.
POSITION = "position"
PLACE = "place"
SOURCE = "source"
ADDRESS = "address"
# In answers: the row that has a value already, the values themselves, and how many there are.
HOLDER = "holder"
VALUE = "value"
TOTAL = "total"


def given_keys(table: int) -> str:
    """The ids of all records that are given for the table of that identity, before the last of each is chosen."""
    return f"given_{table}"


def new_keys(table: int) -> str:
    """The keys that a load brings to the table of that identity."""
    return f"new_{table}"


def old_keys(table: int) -> str:
    """The keys that are committed in the table of that identity."""
    return f"old_{table}"


def _finding(found: Select) -> Select:
    """The first rows of a query by id."""
    ordered = ["id", *(item for item in found.named_selects if item != "id")]
    return (
        select(exp.Star())
        .from_(found.subquery("found", copy=False), copy=False)
        .order_by(*(exp.Ordered(this=column(name)) for name in ordered))
        .limit(REPORTED)
    )


def total_of(finding: Select) -> Select:
    """How many offenders a rule finds. Without any, this is much quicker to say than which they are.

    >>> print(total_of(taken_ids(7)).sql("duckdb")[:36])
    SELECT COUNT(*) AS total FROM (SELEC
    """
    found = next(item for item in finding.find_all(exp.Subquery) if item.alias == "found")
    return select(alias_(func("COUNT", exp.Star()), TOTAL)).from_(found.copy())


# --- which records count ------------------------------------------------------------------------------------


@cache
def superseded_positions(table: int) -> Select:
    """Positions of the given records that a later record of the same id replaces, ascending."""
    last = (
        select(column("id"), alias_(func("MAX", column(POSITION)), "last"))
        .from_(table_(given_keys(table)))
        .group_by(column("id"))
        .having(condition(func("COUNT", exp.Star())) > 1)
    )
    return (
        select(column(POSITION, "a"))
        .from_(table_(given_keys(table), alias="a"))
        .join(last.subquery("b"), on=column("id", "a").eq(column("id", "b")))
        .where(column(POSITION, "a") < column("last", "b"))
        .order_by(column(POSITION, "a"))
    )


@cache
def last_records(table: int) -> Select:
    """The keys of the given records that no later record of the same id replaces."""
    # By their positions: a join of records with later ones of the same id takes the square of how often it repeats.
    last = select(func("MAX", column(POSITION))).from_(table_(given_keys(table))).group_by(column("id"))
    chosen = exp.In(this=column(POSITION, "a"), query=last.subquery())
    return select("*").from_(table_(given_keys(table), alias="a")).where(chosen)


@cache
def rewritten_addresses(table: int) -> Select:
    """Where the committed rows are that the load replaces."""
    return select(column(ADDRESS, "a")).from_(_old(table)).where(_has(new_keys(table), column("id", "a")))


@cache
def count_rewritten(table: int) -> Select:
    """How many committed rows have an id that the load brings."""
    counted = alias_(func("COUNT", exp.Star()), TOTAL)
    return select(counted).from_(_old(table)).where(_has(new_keys(table), column("id", "a")))


def origins(table: int, ids: Iterable[str]) -> Select:
    """Where the records of these ids come from, in input order."""
    wanted = exp.In(this=column("id"), expressions=[exp.Literal.string(item) for item in ids])
    chosen = [column(name) for name in ("id", PLACE, SOURCE)]
    return select(*chosen).from_(table_(new_keys(table))).where(wanted).order_by(column(POSITION))


# --- ids and unique values ----------------------------------------------------------------------------------


@cache
def taken_ids(table: int) -> Select:
    """Records whose id a committed row has."""
    found = select(column("id", "a")).from_(_new(table)).where(_has(old_keys(table), column("id", "a")))
    return _finding(found)


@cache
def repeated_values(table: int, columns: tuple[str, ...], *, kept: bool) -> Select:
    """Records whose values in the columns another has: a kept row, else the record of the least id.

    With `kept` the committed rows that the load does not rewrite count too.
    """
    everything: exp.Query = _tuples(_new(table), columns, fresh=1)
    if kept:
        committed = _tuples(_old(table), columns, fresh=0).where(
            not_(_has(new_keys(table), column("id", "a")))
        )
        everything = everything.union(committed, distinct=False)
    names = [f"{VALUE}{number}" for number in range(len(columns))]
    suspects = (
        select(*map(column, names))
        .from_(everything.subquery("every"))
        .group_by(*map(column, names))
        .having(condition(func("COUNT", exp.Star())) > 1)
    )
    same = and_(*(column(name, "every").eq(column(name, "suspects")) for name in names))
    ranked = (
        select(
            *(column(name, "every") for name in ("id", *names, "fresh")),
            _first(column("id", "every"), names, HOLDER),
            _first(None, names, "rank"),
        )
        .from_(everything.subquery("every"))
        .join(suspects.subquery("suspects"), on=same)
    )
    found = select(*map(column, ("id", *names, HOLDER))).from_(ranked.subquery("ranked"))
    return _finding(found.where(column("fresh").eq(1), condition(column("rank")) > 1))


def _tuples(source: exp.Table, columns: Sequence[str], *, fresh: int) -> Select:
    values = [alias_(column(name, "a"), f"{VALUE}{number}") for number, name in enumerate(columns)]
    present = [not_(column(name, "a").is_(exp.null())) for name in columns]
    mark = alias_(exp.Literal.number(fresh), "fresh")
    return select(column("id", "a"), *values, mark).from_(source).where(*present)


def _first(value: exp.Column | None, names: Sequence[str], alias: str) -> exp.Expr:
    """Of the rows with equal values the kept come first, then the least id."""
    order = exp.Order(
        expressions=[exp.Ordered(this=column("fresh", "every")), exp.Ordered(this=column("id", "every"))]
    )
    window = exp.Window(
        this=exp.RowNumber() if value is None else exp.FirstValue(this=value),
        partition_by=[column(name, "every") for name in names],
        order=order,
    )
    return alias_(window, alias)


# --- endpoints ----------------------------------------------------------------------------------------------


@cache
def dangling_ends(edge: int, end: str, nodes: tuple[str, ...]) -> Select:
    """New edges whose end is in none of the tables of node keys."""
    return _ends(_new(edge), end, nodes)


@cache
def orphaned_ends(edge: int, end: str, node: int) -> Select:
    """Committed edges whose end the load takes away by replacing all nodes of a type."""
    return _ends(_old(edge), end, (new_keys(node),))


def _ends(edges: exp.Table, end: str, nodes: Sequence[str]) -> Select:
    missing = [not_(_has(name, column(end, "a"))) for name in nodes]
    chosen = (column("id", "a"), alias_(column(end, "a"), VALUE))
    return _finding(select(*chosen).from_(edges).where(*missing))


# --- cardinality --------------------------------------------------------------------------------------------


@cache
def wrong_counts(edge: int, mode: LoadMode, replaced: int | None, least: int, most: int | None) -> Select:
    """Sources that gained or lost edges by a load of that mode and have fewer or more than allowed now.

    `replaced` is the table of the sources when an overwrite replaces it as well: a source that it takes away may
    have none.
    """
    changed: exp.Query = _counted(_new(edge), 1)
    if mode == "merge":
        before = _counted(_old(edge), 0).where(_has(new_keys(edge), column("id", "a")))
        changed = changed.union(before, distinct=False)
    elif mode == "overwrite":
        before = _counted(_old(edge), 0)
        if replaced is not None:
            before = before.where(_has(new_keys(replaced), column("src", "a")))
        changed = changed.union(before, distinct=False)
    everything = changed
    if mode != "overwrite":
        names = select(column("src")).distinct().from_(changed.subquery("sources"))
        kept = _counted(_old(edge), 1).where(
            not_(_has(new_keys(edge), column("id", "a"))),
            exp.In(this=column("src", "a"), query=names.subquery()),
        )
        everything = changed.union(kept, distinct=False)
    count = func("SUM", column("edges"))
    wrong: Condition = condition(count) < least
    if most is not None:
        wrong = wrong.or_(condition(count) > most)
    found = select(alias_(column("src"), "id"), alias_(exp.cast(count, "BIGINT"), VALUE))
    return _finding(found.from_(everything.subquery("changes")).group_by(column("src")).having(wrong))


def _counted(source: exp.Table, edges: int) -> Select:
    return select(column("src", "a"), alias_(exp.Literal.number(edges), "edges")).from_(source)


# --- parts --------------------------------------------------------------------------------------------------


def _new(table: int) -> exp.Table:
    return table_(new_keys(table), alias="a")


def _old(table: int) -> exp.Table:
    return table_(old_keys(table), alias="a")


def _has(keys: str, id_: exp.Column) -> exp.Exists:
    """Whether a table of keys has an id."""
    found = select("1").from_(table_(keys, alias="b")).where(column("id", "b").eq(id_))
    return exp.Exists(this=found)
