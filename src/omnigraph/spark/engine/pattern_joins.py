"""Match a pattern on Spark: the steps of a plan as joins of DataFrames.

The steps give the same rows as in the local engine, unordered. Nothing is collected and nothing is executed,
except for an expansion of many hops (see `_Matching._reachable`).
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
from omnigraph.spark.engine.binding_frames import ID, BindingFrame, Names, PropertyKey, referenced_properties
from omnigraph.spark.engine.spark_expressions import ColumnCompiler

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Each hop refers to the previous one twice, so plans double with every hop that is not executed on its own.
_HOPS_AT_ONCE = 3


class TableFrames(Protocol):
    """The tables of one snapshot as DataFrames."""

    @property
    def catalog(self) -> Catalog:
        """The catalog of the tables."""

    def nothing(self) -> DataFrame:
        """Return a DataFrame of one row."""

    def scan(self, key: str, columns: Sequence[str], where: str | None = None) -> DataFrame:
        """Return columns of a table in the given order, for the rows that a scan filter selects."""


def match_pattern(
    tables: TableFrames, query: ir.ReadQuery, pattern: Sequence[ir.Step], bindings: Bindings
) -> BindingFrame:
    """Return the rows that a pattern matches, with every property that the query refers to."""
    used: dict[str, list[str]] = {}
    for variable, name in dict.fromkeys(referenced_properties(query)):
        used.setdefault(variable, []).append(name)
    matching = _Matching(tables, bindings, used, tables.nothing())
    return matching.run(pattern, matching.start())


@dataclass(frozen=True)
class _Matching:
    """The state of matching one query. `used` holds the properties that the query uses of each variable."""

    tables: TableFrames
    bindings: Bindings
    used: Mapping[str, Sequence[str]]
    one_row: DataFrame
    names: Names = field(default_factory=Names)

    def start(self) -> BindingFrame:
        """Return one row without bindings."""
        return BindingFrame(self.one_row, {})

    def run(self, pattern: Sequence[ir.Step], rows: BindingFrame) -> BindingFrame:
        """Run the steps in order."""
        steps = list(pattern)
        while steps:
            step = steps.pop(0)
            match step:
                case ir.NodeScan():
                    rows = self._scan(step, rows)
                case ir.Expand():
                    following = steps.pop(0) if _filters_target(step, steps) else None
                    rows = self._expand(
                        step, following.where if isinstance(following, ir.NodeScan) else (), rows
                    )
                case ir.Filter():
                    rows = rows.with_frame(rows.frame.where(self._compiler(rows).truth(step.predicate)))
                case ir.AntiJoin():
                    rows = self._anti_join(step, rows)
                case ir.OptionalMatch():
                    rows = self._match_optional(step, rows)
        return rows

    def _compiler(self, rows: BindingFrame) -> ColumnCompiler:
        return ColumnCompiler(rows.columns, self.bindings)

    # --- scans -------------------------------------------------------------------------------------------

    def _scan(self, step: ir.NodeScan, rows: BindingFrame) -> BindingFrame:
        if step.variable in rows.variables:
            frame = rows.frame.where(_column(rows, step.variable).isNotNull())
            for predicate in step.where:
                frame = frame.where(self._compiler(rows).truth(predicate))
            return rows.with_frame(frame)
        found = self._nodes(step.variable, step.type_name, step.where)
        if rows.frame is self.one_row:
            return found
        return rows.with_frame(rows.frame.crossJoin(found.frame), found.columns)

    def _nodes(self, variable: str, type_name: str, where: Sequence[ir.Predicate]) -> BindingFrame:
        """Return the nodes of a type that satisfy predicates on these nodes alone."""
        key = table_key("node", type_name)
        columns = self._columns(variable, key)
        predicate = ir.And(tuple(where))
        pushed = push_down(predicate, lambda ref: self._physical(key, ref), self.bindings)
        frame = self.tables.scan(key, [name for _, name in columns], pushed.sql).toDF(*columns.values())
        if not pushed.exact:
            frame = frame.where(ColumnCompiler(columns, self.bindings).truth(predicate))
        return BindingFrame(frame, columns)

    def _columns(self, variable: str, key: str) -> dict[PropertyKey, str]:
        """Return column names for the used properties of a variable that the table has."""
        known = {column.name for column in self.tables.catalog.tables[key].columns}
        used = dict.fromkeys([ID, *self.used.get(variable, ())])
        return self.names.of(variable, [name for name in used if name in known])

    def _physical(self, key: str, ref: ir.PropertyRef | ir.ColumnRef) -> str | None:
        table = self.tables.catalog.tables[key]
        return table.physical(ref.property) if isinstance(ref, ir.PropertyRef) else None

    # --- expansion ---------------------------------------------------------------------------------------

    def _expand(self, step: ir.Expand, where: Sequence[ir.Predicate], rows: BindingFrame) -> BindingFrame:
        edge = self.tables.catalog.schema.edge(step.edge_type)
        if edge is None:
            raise NotFound(f"unknown edge type '{step.edge_type}'")
        key = table_key("edge", edge.name)
        source, target = (step.source, ID), (step.target, ID)
        near, far = self.names.take(), self.names.take()
        edge_columns: dict[PropertyKey, str] = {}
        if step.edge_variable is not None:
            edge_columns = self._columns(step.edge_variable, key)
            links = self._edges(step, key, near, far, edge_columns)
        else:
            links = self._edges(step, key, near, far, {})
            if edge.source != edge.target:
                # An edge between two types cannot be followed twice, so only the first hop matches.
                links = links.where(_lit(step.min == 1)).distinct()
            elif step.max == 1:
                links = links.distinct()
            else:
                sources = rows.frame.select(_column(rows, step.source).alias(near)).distinct()
                links = self._reachable(step, sources, links, near, far)
        condition = _col(rows.columns[source]) == _col(near)
        if step.target_bound:
            condition &= _col(rows.columns[target]) == _col(far)
            return rows.with_frame(rows.frame.join(links, condition).drop(near, far), edge_columns)
        joined = rows.with_frame(rows.frame.join(links, condition).drop(near), {**edge_columns, target: far})
        return self._look_up(step, where, joined)

    def _edges(
        self, step: ir.Expand, key: str, near: str, far: str, columns: Mapping[PropertyKey, str]
    ) -> DataFrame:
        """Return every edge as its two ends in the direction of the step, with the given columns of the edge."""
        rest = [name for _, name in columns]
        out = self.tables.scan(key, ["src", "dst", *rest]).toDF(near, far, *columns.values())
        if step.direction == "out":
            return out
        back = out.select(_col(far).alias(near), _col(near).alias(far), *columns.values())
        # A self-loop leads to its node once, although it can be followed both ways.
        return back if step.direction == "in" else out.unionAll(back.where(_col(near) != _col(far)))

    def _look_up(self, step: ir.Expand, where: Sequence[ir.Predicate], rows: BindingFrame) -> BindingFrame:
        """Add the used properties of the targets. Endpoints always exist, so ids alone need no lookup."""
        if not where and len(self._columns(step.target, table_key("node", step.target_type))) == 1:
            return rows
        nodes = self._nodes(step.target, step.target_type, where)
        own = nodes.columns[step.target, ID]
        rest = {place: name for place, name in nodes.columns.items() if name != own}
        frame = rows.frame.join(nodes.frame, _column(rows, step.target) == _col(own)).drop(own)
        return rows.with_frame(frame, rest)

    def _reachable(
        self, step: ir.Expand, sources: DataFrame, links: DataFrame, near: str, far: str
    ) -> DataFrame:
        """Return the pairs of a source and a node whose shortest distance is within the bounds.

        A source counts as visited; it is a target only by a self-loop, which is not followed further. Every few
        hops the pairs so far are computed and checkpointed, and the search ends if there are no new ones.
        """
        from pyspark.sql import functions as F  # noqa: N812 - the conventional name

        start, end, distance = self.names.take(), self.names.take(), self.names.take()
        # One plan for the edges, so that Spark recognizes the repetition.
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

    def _anti_join(self, step: ir.AntiJoin, rows: BindingFrame) -> BindingFrame:
        outer = self._outer_bindings(step.pattern, rows)
        found = self.run(step.pattern, outer)
        keys = {place: self.names.take() for place in outer.columns if place[1] == ID}
        frame = found.frame.select(*(_col(outer.columns[place]).alias(name) for place, name in keys.items()))
        return rows.with_frame(rows.frame.join(frame, _same(rows, keys), "left_anti"))

    def _match_optional(self, step: ir.OptionalMatch, rows: BindingFrame) -> BindingFrame:
        outer = self._outer_bindings(step.pattern, rows)
        found = self.run(step.pattern, outer)
        keys = {place: self.names.take() for place in outer.columns if place[1] == ID}
        added = found.places([name for name in step.introduces if name not in rows.variables])
        frame = found.frame.select(
            *(_col(outer.columns[place]).alias(name) for place, name in keys.items()), *added.values()
        )
        joined = rows.frame.join(frame, _same(rows, keys), "left").drop(*keys.values())
        return rows.with_frame(joined, added)

    def _outer_bindings(self, pattern: tuple[ir.Step, ...], rows: BindingFrame) -> BindingFrame:
        """Return the variables of the rows that an inner pattern refers to, each combination once."""
        mentioned = {variable for variable, _ in referenced_properties(pattern)}
        places = rows.places(mentioned)
        if not places:
            return self.start()
        ids = [name for place, name in places.items() if place[1] == ID]
        return BindingFrame(rows.frame.select(*places.values()).dropDuplicates(ids), places)


def _filters_target(step: ir.Expand, rest: Sequence[ir.Step]) -> bool:
    """Return whether the next step only filters the new target, so that the target lookup can do it."""
    following = rest[0] if rest else None
    return not step.target_bound and isinstance(following, ir.NodeScan) and following.variable == step.target


def _same(rows: BindingFrame, keys: Mapping[PropertyKey, str]) -> Column:
    """Return the condition that the ids are equal. Nulls of an optional match are equal."""
    condition = _lit(True)
    for place, name in keys.items():
        condition &= _col(rows.columns[place]).eqNullSafe(_col(name))
    return condition


def _column(rows: BindingFrame, variable: str) -> Column:
    return _col(rows.columns[variable, ID])


def _col(name: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.col(name)


def _lit(value: bool) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.lit(value)
