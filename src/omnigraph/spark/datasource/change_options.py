"""Options for reading changes, and the columns of a change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from omnigraph.errors import InvalidInput, NotFound
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.spark.datasource.source_options import (
    graph_location,
    known_options,
    positive,
    required,
    storage_options,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Partitions of one type each read all of its ids, so they should not be small.
ROWS_PER_PARTITION: Final = 500_000
COMMITS_PER_BATCH: Final = 128

Content: TypeAlias = Literal["table", "changes", "diff"]

# The columns with their Spark types.
CHANGE_COLUMNS: Final[Mapping[str, str]] = {
    "kind": "STRING NOT NULL",
    "type": "STRING NOT NULL",
    "type_id": "STRING NOT NULL",
    "id": "STRING NOT NULL",
    "op": "STRING NOT NULL",
    "before": "STRING",
    "after": "STRING",
    "changed": "ARRAY<STRING> NOT NULL",
}
FEED_COLUMNS: Final[Mapping[str, str]] = {
    "commit_id": "STRING NOT NULL",
    "parent_id": "STRING NOT NULL",
    "branch": "STRING NOT NULL",
    "actor": "STRING",
    "committed_at": "TIMESTAMP NOT NULL",
    "commit_sequence": "BIGINT NOT NULL",
    **CHANGE_COLUMNS,
}

_SELECTION: Final = ("kind", "type", "op", "columns", "rowsPerPartition")
FEED_OPTIONS: Final = ("uri", "path", "changes", "branch", "start", "maxCommits", *_SELECTION)
DIFF_OPTIONS: Final = ("uri", "path", "diff", *_SELECTION)


@dataclass(frozen=True)
class ChangeSelection:
    """A selection of changes. None selects all."""

    kinds: tuple[str, ...] | None = None
    types: tuple[str, ...] | None = None
    ops: tuple[str, ...] | None = None


@dataclass(frozen=True)
class FeedOptions:
    """The options of a stream of a branch's changes."""

    uri: str
    storage: Mapping[str, str] = field(repr=False)
    branch: str
    start: str
    selection: ChangeSelection
    columns: tuple[str, ...]
    max_commits: int
    rows_per_partition: int


@dataclass(frozen=True)
class DiffOptions:
    """The options of a read of the difference between two states."""

    uri: str
    storage: Mapping[str, str] = field(repr=False)
    before: str
    after: str
    selection: ChangeSelection
    columns: tuple[str, ...]
    rows_per_partition: int


def content_of(options: Mapping[str, str]) -> Content:
    """Return what options read: the rows of a table, the changes of a branch, or a difference."""
    values = {name.lower(): value for name, value in options.items()}
    if "changes" in values:
        if values["changes"].lower() != "true":
            raise InvalidInput(f"option 'changes': expected true, got '{values['changes']}'")
        return "changes"
    return "diff" if "diff" in values else "table"


def feed_options(options: Mapping[str, str]) -> FeedOptions:
    """Parse the options of ``spark.readStream``."""
    values = known_options(options, FEED_OPTIONS)
    return FeedOptions(
        uri=graph_location(values).uri,
        storage=storage_options(values),
        branch=values.get("branch", "main").strip(),
        start=values.get("start", "now").strip(),
        selection=_selection(values),
        columns=_columns(values, FEED_COLUMNS),
        max_commits=positive(values, "maxCommits", COMMITS_PER_BATCH),
        rows_per_partition=positive(values, "rowsPerPartition", ROWS_PER_PARTITION),
    )


def diff_options(options: Mapping[str, str]) -> DiffOptions:
    """Parse the options of ``spark.read`` with a ``diff``.

    >>> found = diff_options({"path": "g", "diff": "main..trial", "op": "insert, delete"})
    >>> found.before, found.after, found.selection.ops
    ('main', 'trial', ('insert', 'delete'))
    """
    values = known_options(options, DIFF_OPTIONS)
    text = required(values, "diff")
    before, dots, after = (part.strip() for part in text.partition(".."))
    if not before or not dots or not after or ".." in after:
        raise InvalidInput(
            f"option 'diff': expected A..B, got '{text}'",
            hint="A and B are branches or commit ids; use the commit id of the head for a branch name with dots",
        )
    return DiffOptions(
        uri=graph_location(values).uri,
        storage=storage_options(values),
        before=before,
        after=after,
        selection=_selection(values),
        columns=_columns(values, CHANGE_COLUMNS),
        rows_per_partition=positive(values, "rowsPerPartition", ROWS_PER_PARTITION),
    )


def change_ddl(columns: Iterable[str]) -> str:
    """Return columns of changes as Spark DDL.

    >>> change_ddl(["id", "before"])
    'id STRING NOT NULL, before STRING'
    """
    return ", ".join(f"{name} {FEED_COLUMNS[name]}" for name in columns)


def check_schema(schema: StructType, columns: Mapping[str, str]) -> None:
    """Raise an error if a schema has other columns than these, or other types."""
    _check_names(schema.fieldNames(), columns)
    for item in schema.fields:
        kind, _, not_null = columns[item.name].partition(" ")
        if kind.lower() != item.dataType.simpleString() or not (not_null or item.nullable):
            raise InvalidInput(
                f"column '{item.name}' of a change: expected {columns[item.name]}",
                hint="read the column with its own type and cast it afterwards",
            )


def _selection(values: Mapping[str, str]) -> ChangeSelection:
    return ChangeSelection(_listed(values, "kind"), _listed(values, "type"), _listed(values, "op"))


def _columns(values: Mapping[str, str], known: Mapping[str, str]) -> tuple[str, ...]:
    chosen = _listed(values, "columns")
    if chosen is None:
        return tuple(known)
    _check_names(chosen, known)
    return chosen


def _check_names(names: Iterable[str], known: Mapping[str, str]) -> None:
    seen = set()
    for name in names:
        if name not in known:
            raise NotFound(f"a change has no column '{name}'{did_you_mean(name, sorted(known))}")
        if name in seen:
            raise InvalidInput(f"column '{name}' is selected twice")
        seen.add(name)


def _listed(values: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    return None if name not in values else tuple(item.strip() for item in values[name].split(","))
