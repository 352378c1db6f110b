"""A read on Spark: the steps of its pattern as joins of DataFrames.

The steps give the rows that they give in memory, in no order. Nothing is collected and nothing is run, but for
a walk of many hops, which is run in pieces (see `_Matching._reached`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from omnigraph.catalog.catalog import Catalog, table_key
from omnigraph.engine.parameters import Bindings
from omnigraph.engine.pushdown import push_down
from omnigraph.errors import NotFound
from omnigraph.lang import ir
from omnigraph.spark.engine.binding_frames import ID, Names, Place, Rows, looked_at
from omnigraph.spark.engine.spark_expressions import Scope

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Each hop looks at the one before twice, so plans double with every hop that is not run by itself.
_HOPS_AT_ONCE = 3


class Tables(Protocol):
    """The tables of one snapshot as DataFrames."""

    @property
    def catalog(self) -> Catalog:
        """What the tables are."""

    def nothing(self) -> DataFrame:
        """A frame of one row."""

    def scan(self, key: str, columns: Sequence[str], where: str | None = None) -> DataFrame:
        """Some columns of a table, in the order asked for, of the rows that a scan's filter selects."""


def match_pattern(
    tables: Tables, query: ir.ReadQuery, pattern: Sequence[ir.Step], bindings: Bindings
) -> Rows:
    """The rows that a pattern of the query matches, with every property that the query looks at."""
    wanted: dict[str, list[str]] = {}
    for variable, name in dict.fromkeys(looked_at(query)):
        wanted.setdefault(variable, []).append(name)
    matching = _Matching(tables, bindings, wanted, tables.nothing())
    return matching.run(pattern, matching.start())


@dataclass(frozen=True)
class _Matching:
    """The matching of one query."""

    tables: Tables
    bindings: Bindings
    wanted: Mapping[str, Sequence[str]]
    one_row: DataFrame
    names: Names = field(default_factory=Names)

    def start(self) -> Rows:
        """One row that binds nothing."""
        return Rows(self.one_row, {})

    def run(self, pattern: Sequence[ir.Step], rows: Rows) -> Rows:
        """Take the steps one after the other."""
        steps = list(pattern)
        while steps:
            step = steps.pop(0)
            match step:
                case ir.NodeScan():
                    rows = self._scan(step, rows)
                case ir.Expand():
                    about = steps.pop(0) if _is_about_target(step, steps) else None
                    rows = self._expand(step, about.where if isinstance(about, ir.NodeScan) else (), rows)
                case ir.Filter():
                    rows = rows.with_frame(rows.frame.where(self._scope(rows).truth(step.predicate)))
                case ir.AntiJoin():
                    rows = self._without(step, rows)
                case ir.OptionalMatch():
                    rows = self._maybe(step, rows)
        return rows

    def _scope(self, rows: Rows) -> Scope:
        return Scope(rows.columns, self.bindings)

    # --- scans -------------------------------------------------------------------------------------------

    def _scan(self, step: ir.NodeScan, rows: Rows) -> Rows:
        if step.variable in rows.variables:
            frame = rows.frame.where(_column(rows, step.variable).isNotNull())
            for predicate in step.where:
                frame = frame.where(self._scope(rows).truth(predicate))
            return rows.with_frame(frame)
        found = self._nodes(step.variable, step.type_name, step.where)
        if rows.frame is self.one_row:
            return found
        return rows.with_frame(rows.frame.crossJoin(found.frame), found.columns)

    def _nodes(self, variable: str, type_name: str, where: Sequence[ir.Predicate]) -> Rows:
        """The nodes of a type that satisfy predicates about nothing but themselves."""
        key = table_key("node", type_name)
        columns = self._columns(variable, key)
        predicate = ir.And(tuple(where))
        pushed = push_down(predicate, lambda ref: self._physical(key, ref), self.bindings)
        frame = self.tables.scan(key, [name for _, name in columns], pushed.sql).toDF(*columns.values())
        if not pushed.exact:
            frame = frame.where(Scope(columns, self.bindings).truth(predicate))
        return Rows(frame, columns)

    def _columns(self, variable: str, key: str) -> dict[Place, str]:
        """Names for what the query wants of a variable; another scope's variable of that name may want more."""
        known = {column.name for column in self.tables.catalog.tables[key].columns}
        wanted = dict.fromkeys([ID, *self.wanted.get(variable, ())])
        return self.names.of(variable, [name for name in wanted if name in known])

    def _physical(self, key: str, ref: ir.PropertyRef | ir.ColumnRef) -> str | None:
        table = self.tables.catalog.tables[key]
        return table.physical(ref.property) if isinstance(ref, ir.PropertyRef) else None

    # --- expansion ---------------------------------------------------------------------------------------

    def _expand(self, step: ir.Expand, where: Sequence[ir.Predicate], rows: Rows) -> Rows:
        edge = self.tables.catalog.schema.edge(step.edge_type)
        if edge is None:
            raise NotFound(f"unknown edge type '{step.edge_type}'")
        key = table_key("edge", edge.name)
        source, target = (step.source, ID), (step.target, ID)
        near, far = self.names.take(), self.names.take()
        made: dict[Place, str] = {}
        if step.edge_variable is not None:
            made = self._columns(step.edge_variable, key)
            links = self._edges(step, key, near, far, made)
        else:
            links = self._edges(step, key, near, far, {})
            if edge.source != edge.target:
                # Two steps along such an edge lead nowhere: only the first can match.
                links = links.where(_lit(step.min == 1)).distinct()
            elif step.max == 1:
                links = links.distinct()
            else:
                sources = rows.frame.select(_column(rows, step.source).alias(near)).distinct()
                links = self._reached(step, sources, links, near, far)
        condition = _col(rows.columns[source]) == _col(near)
        if step.target_bound:
            condition &= _col(rows.columns[target]) == _col(far)
            return rows.with_frame(rows.frame.join(links, condition).drop(near, far), made)
        joined = rows.with_frame(rows.frame.join(links, condition).drop(near), {**made, target: far})
        return self._look_up(step, where, joined)

    def _edges(
        self, step: ir.Expand, key: str, near: str, far: str, columns: Mapping[Place, str]
    ) -> DataFrame:
        """Every edge as the ends that it leads from and to, with columns of its own."""
        rest = [name for _, name in columns]
        out = self.tables.scan(key, ["src", "dst", *rest]).toDF(near, far, *columns.values())
        if step.direction == "out":
            return out
        back = out.select(_col(far).alias(near), _col(near).alias(far), *columns.values())
        # An edge from a node to itself leads there once, although it can be followed both ways.
        return back if step.direction == "in" else out.unionAll(back.where(_col(near) != _col(far)))

    def _look_up(self, step: ir.Expand, where: Sequence[ir.Predicate], rows: Rows) -> Rows:
        """Add what is wanted of the targets. Edges end in nodes that exist, so their ids alone need no look."""
        if not where and len(self._columns(step.target, table_key("node", step.target_type))) == 1:
            return rows
        nodes = self._nodes(step.target, step.target_type, where)
        own = nodes.columns[step.target, ID]
        rest = {place: name for place, name in nodes.columns.items() if name != own}
        frame = rows.frame.join(nodes.frame, _column(rows, step.target) == _col(own)).drop(own)
        return rows.with_frame(frame, rest)

    def _reached(
        self, step: ir.Expand, sources: DataFrame, links: DataFrame, near: str, far: str
    ) -> DataFrame:
        """The pairs of a source and a node whose shortest distance is within the bounds.

        A source counts as visited, and is a target only by an edge to itself, which is not followed on. Every few
        hops what is known so far is computed and kept by Spark until nobody holds on to it; that is also when it
        shows that there is nothing new and the walk may end.
        """
        from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by

        start, end, distance = self.names.take(), self.names.take(), self.names.take()
        # One plan for the edges, so that Spark sees that it is one.
        edges = links.toDF(start, end)
        reached = (
            sources.join(links, near).select(near, far).distinct().withColumn(distance, F.lit(1).cast("int"))
        )
        for hop in range(2, step.max + 1):
            last = reached.where((_col(distance) == hop - 1) & (_col(near) != _col(far)))
            following = (
                last.join(edges, _col(far) == _col(start))
                .where(_col(near) != _col(end))
                .select(near, _col(end).alias(far), F.lit(hop).cast("int").alias(distance))
            )
            reached = reached.unionAll(following).groupBy(near, far).agg(F.min(distance).alias(distance))
            if hop % _HOPS_AT_ONCE == 0 and hop < step.max:
                reached = reached.localCheckpoint()
                if reached.where(_col(distance) == hop).isEmpty():
                    break
        return reached.where(_col(distance) >= step.min).select(near, far)

    # --- inner patterns ----------------------------------------------------------------------------------

    def _without(self, step: ir.AntiJoin, rows: Rows) -> Rows:
        outer = self._outer(step.pattern, rows)
        found = self.run(step.pattern, outer)
        keys = {place: self.names.take() for place in outer.columns if place[1] == ID}
        frame = found.frame.select(*(_col(outer.columns[place]).alias(name) for place, name in keys.items()))
        return rows.with_frame(rows.frame.join(frame, _same(rows, keys), "left_anti"))

    def _maybe(self, step: ir.OptionalMatch, rows: Rows) -> Rows:
        outer = self._outer(step.pattern, rows)
        found = self.run(step.pattern, outer)
        keys = {place: self.names.take() for place in outer.columns if place[1] == ID}
        added = found.places([name for name in step.introduces if name not in rows.variables])
        frame = found.frame.select(
            *(_col(outer.columns[place]).alias(name) for place, name in keys.items()), *added.values()
        )
        joined = rows.frame.join(frame, _same(rows, keys), "left").drop(*keys.values())
        return rows.with_frame(joined, added)

    def _outer(self, pattern: tuple[ir.Step, ...], rows: Rows) -> Rows:
        """What an inner pattern sees of the rows around it: its variables, each combination once."""
        mentioned = {variable for variable, _ in looked_at(pattern)}
        places = rows.places(mentioned)
        if not places:
            return self.start()
        ids = [name for place, name in places.items() if place[1] == ID]
        return Rows(rows.frame.select(*places.values()).dropDuplicates(ids), places)


def _is_about_target(step: ir.Expand, rest: Sequence[ir.Step]) -> bool:
    """Whether the next step only says what a new target has to satisfy, which the look at the targets sees to."""
    following = rest[0] if rest else None
    return not step.target_bound and isinstance(following, ir.NodeScan) and following.variable == step.target


def _same(rows: Rows, keys: Mapping[Place, str]) -> Column:
    """Whether the ids are the same; those that an optional pattern left null are."""
    condition = _lit(True)
    for place, name in keys.items():
        condition &= _col(rows.columns[place]).eqNullSafe(_col(name))
    return condition


def _column(rows: Rows, variable: str) -> Column:
    return _col(rows.columns[variable, ID])


def _col(name: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.col(name)


def _lit(value: bool) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.lit(value)
