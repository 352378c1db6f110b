"""The tasks of a verification. Each reads files or rows and returns what is wrong, in this process or on Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp
from sqlglot.expressions import column, func, select

from omnigraph.catalog.key_arrays import derive_ids
from omnigraph.catalog.keys import TypeKey
from omnigraph.engine.duckdb import run_sql
from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.maintain.verification.report import RowDamageKind
from omnigraph.store.file_verification import ExpectedFile, FileResult, check_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.objects.backend import ObjectInfo
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.tables.table_fragments import TableFragment, list_fragments, scan_fragment
from omnigraph.store.tables.tables import Tables
from omnigraph.store.tables.version_files import VersionFiles, describe_version

# A report shows at most this many of the ids that violate a rule.
SHOWN_IDS = 5


@dataclass(frozen=True, slots=True)
class GraphAddress:
    """The address of a graph, with which a task reads its files."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def objects(self) -> ObjectStore:
        """Return the objects of the graph. Storage is not accessed."""
        return ObjectStore.open(self.uri, self.options)


@dataclass(frozen=True, slots=True)
class DescribeTask:
    """List the files of a table version. `stored` are the names of all known files of the table."""

    path: str
    version: int
    stored: Sequence[str] = field(default=(), repr=False)
    rows: int = 1

    def run(self, root: LanceRoot) -> VersionFiles:
        """Read the manifest file of the version."""
        return describe_version(root, self.path, self.version, self.stored)


@dataclass(frozen=True, slots=True)
class FileTask:
    """Compare files with what is expected of them. `files` has each file with its entry in the listing."""

    graph: GraphAddress
    files: tuple[tuple[ExpectedFile, ObjectInfo | None], ...]
    quick: bool

    @property
    def rows(self) -> int:
        """The number of bytes to read."""
        return sum(0 if info is None else info.size for _, info in self.files)

    def run(self, root: LanceRoot) -> list[FileResult]:  # noqa: ARG002 - files are read as objects
        """Check the files and return the result of each."""
        objects = self.graph.objects()
        return [check_file(objects, expected, info, quick=self.quick) for expected, info in self.files]


@dataclass(frozen=True, slots=True)
class RowProblem:
    """Rows of a table that violate a rule; `count` is their number. `file` is the data file that holds them."""

    kind: RowDamageKind
    problem: str
    count: int
    file: str | None = None


@dataclass(frozen=True, slots=True)
class RowTask:
    """Check the rows of a table: their number, their ids and their unique values.

    `uniques` are the physical columns of unique constraints. The fragments in `decode` have files without a digest;
    all of their values are decoded, which finds some damage that the size does not show. `id_key` is the key
    that the ids of edges are derived from.
    """

    pin: TablePin
    uniques: tuple[tuple[str, ...], ...] = ()
    decode: frozenset[int] = frozenset()
    id_key: TypeKey | None = None

    @property
    def rows(self) -> int:
        """The number of rows to read."""
        return self.pin.rows

    def run(self, root: LanceRoot) -> list[RowProblem]:
        """Read the rows and return the problems. Memory use is bounded: large groupings spill to disk."""
        tables = Tables(root)
        problems = list(_undecodable(tables, self.pin, self.decode))
        if problems:
            return problems
        try:
            problems += _repeated_ids(tables, self.pin)
            for columns in self.uniques:
                problems += _repeated_values(tables, self.pin, columns)
            if self.id_key is not None:
                problems += _wrong_ids(tables, self.pin, self.id_key)
        except OmnigraphError as error:
            if isinstance(error, NotFound) or not getattr(error, "is_refusal", False):
                return [RowProblem("unreadable", error.message, self.pin.rows)]
            raise
        return problems


@dataclass(frozen=True, slots=True)
class EndpointTask:
    """Check that the nodes at one end of all edges of a type exist. `end` is ``src`` or ``dst``."""

    edges: TablePin
    end: str
    nodes: TablePin
    node_key: str

    @property
    def rows(self) -> int:
        """The number of edges to read."""
        return self.edges.rows

    def run(self, root: LanceRoot) -> list[RowProblem]:
        """Join the edges with the nodes and return the edges without a node."""
        tables = Tables(root)
        lone = select("id", self.end).from_("edges").where(exp.Exists(this=_same_node(self.end)).not_())
        query = select(func("count", exp.Star()).as_("total"), _some("id").as_("examples")).from_(
            lone.subquery("lone")
        )
        found = _query(
            tables, query, {"edges": (self.edges, ["id", self.end]), "nodes": (self.nodes, ["id"])}
        )
        if not found["total"]:
            return []
        problem = (
            f"{self.end} not found in {self.node_key}, for example in the edges {_shown(found['examples'])}"
        )
        return [RowProblem("dangling_edge", problem, int(found["total"]))]


def _same_node(end: str) -> exp.Select:
    return select("1").from_("nodes").where(column("id", table="nodes").eq(column(end, table="edges")))


def _repeated_ids(tables: Tables, pin: TablePin) -> Iterator[RowProblem]:
    rows, groups, extra, examples = _count_groups(tables, pin, ("id",))
    if rows != pin.rows:
        yield RowProblem(
            "rows", f"{rows} rows can be read, the commit states {pin.rows}", abs(pin.rows - rows)
        )
    if extra:
        problem = f"{groups} ids occur more than once, for example {_shown(examples)}"
        yield RowProblem("duplicate_id", problem, extra)


def _repeated_values(tables: Tables, pin: TablePin, columns: tuple[str, ...]) -> Iterator[RowProblem]:
    _, groups, extra, examples = _count_groups(tables, pin, columns)
    if extra:
        name = ", ".join(columns)
        problem = f"{groups} values of the unique column {name} occur more than once: {_shown(examples)}"
        yield RowProblem("duplicate_id", problem, extra)


def _wrong_ids(tables: Tables, pin: TablePin, key: TypeKey) -> Iterator[RowProblem]:
    """Compare the ids with the ids that the key gives."""
    total, examples = 0, pa.array([], pa.string())
    for batch in tables.scan_batches(pin, ["id", *(item.physical for item in key.columns)]):
        derived = derive_ids(key, {item.name: batch.column(item.physical) for item in key.columns})
        wrong = batch.column("id").filter(pc.not_equal(batch.column("id"), derived))
        total += len(wrong)
        examples = pa.concat_arrays([examples, wrong.cast(pa.string())]).slice(0, SHOWN_IDS)
    if total:
        problem = f"{total} ids are not those that the key gives, for example {_shown(examples.to_pylist())}"
        yield RowProblem("wrong_id", problem, total)


def _count_groups(tables: Tables, pin: TablePin, columns: tuple[str, ...]) -> tuple[int, int, int, list[Any]]:
    """Return the rows, the values that occur more than once, the rows too many, and some of these values.

    Rows with a null in one of the columns count as rows, and their values may repeat, except ids.
    """
    names = [column(name, quoted=True) for name in columns]
    counted = select(*names, func("count", exp.Star()).as_("n")).from_("rows").group_by(*names)
    checked = exp.true() if columns == ("id",) else exp.and_(*(name.is_(exp.null()).not_() for name in names))
    repeated = exp.and_(column("n") > 1, checked)
    query = select(
        func("sum", column("n")).as_("rows"),
        exp.Filter(this=func("count", exp.Star()), expression=exp.Where(this=repeated)).as_("groups"),
        exp.Filter(this=func("sum", column("n") - 1), expression=exp.Where(this=repeated)).as_("extra"),
        exp.Filter(this=_some(columns[0]), expression=exp.Where(this=repeated)).as_("examples"),
    ).from_(counted.subquery("counted"))
    found = _query(tables, query, {"rows": (pin, list(columns))})
    return int(found["rows"] or 0), int(found["groups"]), int(found["extra"] or 0), found["examples"] or []


def _some(name: str) -> exp.Expression:
    """Return an aggregate of the first few values of a column, in order."""
    return exp.Anonymous(this="min", expressions=[column(name, quoted=True), exp.Literal.number(SHOWN_IDS)])


def _shown(values: Sequence[Any]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _query(
    tables: Tables, query: exp.Expression, inputs: Mapping[str, tuple[TablePin, list[str]]]
) -> dict[str, Any]:
    """Return the single row of a query over columns of tables. An error of storage is raised as it is."""
    failures: list[OmnigraphError] = []

    def batches(pin: TablePin, names: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from tables.scan_batches(pin, names)
        except OmnigraphError as error:
            failures.append(error)
            raise

    readers = {}
    for name, (pin, columns) in inputs.items():
        schema = pa.schema([item for item in tables.schema(pin) if item.name in columns])
        readers[name] = pa.RecordBatchReader.from_batches(schema, batches(pin, schema.names))
    try:
        rows: list[dict[str, Any]] = run_sql(query, readers).to_pylist()
    except Exception as error:
        # DuckDB reports a failure of its input as an error of its own.
        if failures:
            raise failures[0] from error
        raise
    return rows[0]


def _undecodable(tables: Tables, pin: TablePin, fragments: frozenset[int]) -> Iterator[RowProblem]:
    """Decode all values of some fragments and yield the ones that cannot be decoded."""
    if not fragments:
        return
    for fragment in list_fragments(tables, pin):
        if fragment.id in fragments:
            problem = decode_fragment(tables, pin, fragment)
            if problem is not None:
                names = fragment.files.split("|")
                file = f"data/{names[0]}" if len(names) == 1 else None
                yield RowProblem("unreadable", problem, fragment.rows, file)


def decode_fragment(tables: Tables, pin: TablePin, fragment: TableFragment) -> str | None:
    """Read all rows of a fragment; return the error if they cannot be decoded or are too few."""
    try:
        rows = sum(batch.num_rows for batch in scan_fragment(tables, pin, fragment))
    except OmnigraphError as error:
        if getattr(error, "is_refusal", False):
            raise
        return error.message
    return None if rows == fragment.rows else f"{rows} rows can be read, expected {fragment.rows}"
