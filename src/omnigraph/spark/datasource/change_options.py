"""The options of reads that tell changes, and the columns that a change has."""

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

# Parts of one type each look at all of its ids, so that they should not be small.
ROWS_PER_PARTITION: Final = 500_000
COMMITS_PER_BATCH: Final = 128

Content: TypeAlias = Literal["table", "changes", "diff"]

# What Spark has them as.
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

_CHOICE: Final = ("kind", "type", "op", "columns", "rowsPerPartition")
FEED_OPTIONS: Final = ("uri", "path", "changes", "branch", "start", "maxCommits", *_CHOICE)
DIFF_OPTIONS: Final = ("uri", "path", "diff", *_CHOICE)


@dataclass(frozen=True)
class Choice:
    """Which changes are wanted; `None` wants all of them."""

    kinds: tuple[str, ...] | None = None
    types: tuple[str, ...] | None = None
    ops: tuple[str, ...] | None = None


@dataclass(frozen=True)
class FeedOptions:
    """What a stream of the changes of a branch was asked for."""

    uri: str
    storage: Mapping[str, str] = field(repr=False)
    branch: str
    start: str
    choice: Choice
    columns: tuple[str, ...]
    max_commits: int
    rows_per_partition: int


@dataclass(frozen=True)
class DiffOptions:
    """What a read of the difference of two states was asked for."""

    uri: str
    storage: Mapping[str, str] = field(repr=False)
    before: str
    after: str
    choice: Choice
    columns: tuple[str, ...]
    rows_per_partition: int


def content_of(options: Mapping[str, str]) -> Content:
    """What a read with these options tells: the rows of a table, the changes of a branch, or a difference."""
    given = {name.lower(): value for name, value in options.items()}
    if "changes" in given:
        if given["changes"].lower() != "true":
            raise InvalidInput(f"the option 'changes' is '{given['changes']}'", hint="it is true")
        return "changes"
    return "diff" if "diff" in given else "table"


def feed_options(options: Mapping[str, str]) -> FeedOptions:
    """What the options of ``spark.readStream`` mean."""
    given = known_options(options, FEED_OPTIONS)
    return FeedOptions(
        uri=graph_location(given).uri,
        storage=storage_options(given),
        branch=given.get("branch", "main").strip(),
        start=given.get("start", "now").strip(),
        choice=_choice(given),
        columns=_columns(given, FEED_COLUMNS),
        max_commits=positive(given, "maxCommits", COMMITS_PER_BATCH),
        rows_per_partition=positive(given, "rowsPerPartition", ROWS_PER_PARTITION),
    )


def diff_options(options: Mapping[str, str]) -> DiffOptions:
    """What the options of ``spark.read`` with a ``diff`` mean.

    >>> found = diff_options({"path": "g", "diff": "main..trial", "op": "insert, delete"})
    >>> found.before, found.after, found.choice.ops
    ('main', 'trial', ('insert', 'delete'))
    """
    given = known_options(options, DIFF_OPTIONS)
    text = required(given, "diff")
    before, dots, after = (part.strip() for part in text.partition(".."))
    if not before or not dots or not after or ".." in after:
        raise InvalidInput(
            f"the option 'diff' is '{text}'",
            hint="write A..B, each a branch or the id of a commit; a name with dots in it by the id of its head",
        )
    return DiffOptions(
        uri=graph_location(given).uri,
        storage=storage_options(given),
        before=before,
        after=after,
        choice=_choice(given),
        columns=_columns(given, CHANGE_COLUMNS),
        rows_per_partition=positive(given, "rowsPerPartition", ROWS_PER_PARTITION),
    )


def change_ddl(columns: Iterable[str]) -> str:
    """Columns of changes in Spark's terms.

    >>> change_ddl(["id", "before"])
    'id STRING NOT NULL, before STRING'
    """
    return ", ".join(f"{name} {FEED_COLUMNS[name]}" for name in columns)


def check_schema(schema: StructType, columns: Mapping[str, str]) -> None:
    """Refuse a schema that asks for other columns than these, or for other types."""
    _check_names(schema.fieldNames(), columns)
    for item in schema.fields:
        kind, _, not_null = columns[item.name].partition(" ")
        if kind.lower() != item.dataType.simpleString() or not (not_null or item.nullable):
            raise InvalidInput(
                f"column '{item.name}' of a change is {columns[item.name]}",
                hint="read it as it is and cast afterwards",
            )


def _choice(given: Mapping[str, str]) -> Choice:
    return Choice(_listed(given, "kind"), _listed(given, "type"), _listed(given, "op"))


def _columns(given: Mapping[str, str], known: Mapping[str, str]) -> tuple[str, ...]:
    chosen = _listed(given, "columns")
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
            raise InvalidInput(f"column '{name}' is asked for twice")
        seen.add(name)


def _listed(given: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    return None if name not in given else tuple(item.strip() for item in given[name].split(","))
