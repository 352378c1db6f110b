"""The content of a pipeline file: sources, views, targets, quarantine, audits and the publish rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from omnigraph.rules.load_mode import IndexTime

FileFormat: TypeAlias = Literal["csv", "json", "ndjson", "parquet", "orc", "arrow"]
TargetMode: TypeAlias = Literal["append", "merge", "patch", "delete", "overwrite"]
FailedRows: TypeAlias = Literal["fail", "quarantine", "drop"]
# The rule that an edge without its nodes breaks.
ORPHAN: Final = "endpoint"


class Section(BaseModel):
    """A part of the file. Unknown keys are errors, and text is not converted to other types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class Publish(Section):
    """The branch of a run, and what happens to it when the audits have passed."""

    branch: str = "review/{run_id}"
    from_: str = Field("main", alias="from")
    merge: Literal["when_passed", "never"] = "when_passed"


class ColumnIncrement(Section):
    """Incremental reads by a column that grows, such as the time of the last update.

    Rows that are `lag` older than the newest row of the last run are read again, because transactions may commit
    later than rows with newer values.
    """

    column: str
    lag: str | int | None = None


class FileSource(Section):
    """Files of one format: a path, a folder with or without partitions such as ``day=2026-05-01``, or a glob."""

    format: FileFormat
    path: str
    incremental: Literal["files"] | None = None
    columns: str | None = None
    null: str = ""


class JdbcSource(Section):
    """A table or a query of a relational database."""

    format: Literal["jdbc"]
    url: str
    table: str | None = None
    query: str | None = None
    user: str | None = None
    password: str | None = None
    driver: str | None = None
    options: dict[str, str] = {}
    incremental: ColumnIncrement | None = None

    @model_validator(mode="after")
    def _check_table(self) -> JdbcSource:
        if (self.table is None) == (self.query is None):
            raise ValueError("expected one of `table` and `query`")
        return self


class KafkaSource(Section):
    """The messages of a Kafka topic, each read once."""

    format: Literal["kafka"]
    servers: str
    topic: str
    options: dict[str, str] = {}


class GraphSource(Section):
    """The rows of a type of a graph."""

    format: Literal["omnigraph"]
    graph: str
    type: str
    branch: str = "main"


class ChangesSource(Section):
    """The changes of a type of a graph since the last run, with the columns of the type, `id` and `op`."""

    format: Literal["changes"]
    graph: str
    type: str
    branch: str = "main"


class TableSource(Section):
    """A table of Spark's catalog."""

    format: Literal["table"]
    table: str
    incremental: ColumnIncrement | None = None


class SparkSource(Section):
    """Anything else that the session can read, such as Delta, Iceberg or Avro."""

    format: Literal["spark"]
    reader: str
    path: str | None = None
    options: dict[str, str] = {}
    incremental: ColumnIncrement | None = None


Source: TypeAlias = Annotated[
    FileSource | JdbcSource | KafkaSource | GraphSource | ChangesSource | TableSource | SparkSource,
    Field(discriminator="format"),
]


class Dedup(Section):
    """One row for each key: the one with the greatest value of `latest_by`."""

    keys: Annotated[list[str], Field(min_length=1)]
    latest_by: str | None = None


class NodeTarget(Section):
    """The rows of a node type: where they come from, and what they must satisfy."""

    from_: str = Field(alias="from")
    mode: TargetMode = "merge"
    columns: dict[str, str] = {}
    ignore: bool | list[str] = False
    dedup: Dedup | None = None
    expect: dict[str, str] = {}
    on_fail: FailedRows = "fail"
    delete_when: str | None = None
    order_by: str | None = None


class EdgeTarget(NodeTarget):
    """The rows of an edge type. `src` and `dst` are the columns with the keys of the end points.

    `on_orphan` is what happens to an edge without its nodes; default: the same as to other failed rows.
    """

    src: str | list[str] = "src"
    dst: str | list[str] = "dst"
    on_orphan: Literal["fail", "quarantine"] | None = None


def fails_run(target: NodeTarget, rule: str) -> bool:
    """Return whether a row of a target that breaks this rule of the schema fails the run."""
    if rule == ORPHAN and isinstance(target, EdgeTarget) and target.on_orphan is not None:
        return target.on_orphan == "fail"
    return target.on_fail == "fail"


class Quarantine(Section):
    """Where rows that fail an expectation or a rule of the schema go, and how many are accepted."""

    path: str
    max: int | str | None = None

    @field_validator("max")
    @classmethod
    def _check_max(cls, value: int | str | None) -> int | str | None:
        if isinstance(value, str):
            number = value.removesuffix("%")
            try:
                valid = number != value and 0 <= float(number) <= 100
            except ValueError:
                valid = False
            if not valid:
                raise ValueError("expected a number of rows, or a percentage such as 0.5%")
        return value


class Audit(Section):
    """A check of the review branch: a stored query, or the changes against a branch."""

    name: str | None = None
    query: str | None = None
    params: dict[str, Any] = {}
    diff: str | None = None
    expect: str

    @model_validator(mode="after")
    def _check_subject(self) -> Audit:
        if (self.query is None) == (self.diff is None):
            raise ValueError("expected one of `query` and `diff`")
        return self


# SQL, or a function of a Python file whose parameters are the names of sources and views.
View: TypeAlias = str | Callable[..., Any]
Rows: TypeAlias = list[dict[str, Any]]


class Expected(Section):
    """The result that a test expects. Rows are compared by the properties that they name."""

    graph: str | None = None
    nodes: dict[str, Rows] = {}
    edges: dict[str, Rows] = {}
    quarantined: dict[str, int] | None = None
    outcome: Literal["published", "unchanged", "left", "failed"] | None = None


class TestCase(Section):
    """A run on an empty graph, or on the records of `graph`, with rows or files in place of the sources."""

    __test__ = False

    graph: str | None = None
    sources: dict[str, Rows | str] = {}
    expect: Expected


class Definition(Section):
    """A whole pipeline file."""

    name: str | None = None
    graph: str
    schema_: str | None = Field(None, alias="schema")
    publish: Publish = Field(default_factory=lambda: Publish.model_validate({}))
    sources: Annotated[dict[str, Source], Field(min_length=1)]
    views: dict[str, View] = {}
    nodes: dict[str, NodeTarget] = {}
    edges: dict[str, EdgeTarget] = {}
    quarantine: Quarantine | None = None
    index: IndexTime = "now"
    audits: list[Audit] = []
    tests: dict[str, TestCase] = {}
