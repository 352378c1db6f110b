"""The versions of one node or edge, and the commits that set its present values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import ENDPOINT_NAMES
from omnigraph.catalog.entity_images import Image, images
from omnigraph.catalog.row_json import json_values
from omnigraph.changes.diff import TypeDiff
from omnigraph.changes.entity_walk import EntityWalk, Step, StoredEntity
from omnigraph.engine.diff.table_diff import TableDiff
from omnigraph.errors import NotFound
from omnigraph.graph.repository import Repository
from omnigraph.graph.snapshot import Snapshot
from omnigraph.read.entity import named_table
from omnigraph.store.manifest.records import CommitRecord

Authorize: TypeAlias = Callable[[CommitRecord], None]
VersionOp: TypeAlias = Literal["insert", "update", "delete", "unknown"]


@dataclass(frozen=True, slots=True)
class FoundVersion:
    """A commit that changed an entity, and how. See `EntityVersion`."""

    commit: CommitRecord
    op: VersionOp
    before: Image | None
    after: Image | None
    changed: tuple[str, ...]
    gap: bool


@dataclass(frozen=True, slots=True)
class FoundOrigin:
    """The commit that set a property. See `PropertyOrigin`."""

    property: str
    value: Any
    commit: CommitRecord
    exact: bool


def entity_versions(
    repository: Repository, start: Snapshot, type_name: str, id_: str, authorize: Authorize | None = None
) -> Iterator[FoundVersion]:
    """Yield the versions of an entity up to a state, newest first. Raises `NotFound` for an unknown type.

    A change that a merge took over is that of the commit on the merged branch. The merge itself is a version only
    if the entity differs from both of its parents.
    """
    walk = EntityWalk(repository, named_table(start.catalog, type_name).type_id, id_, authorize)
    for step in walk.steps(start.commit):
        if step.changed:
            yield _version(walk, step)


def property_origins(
    repository: Repository, start: Snapshot, type_name: str, id_: str, authorize: Authorize | None = None
) -> list[FoundOrigin]:
    """Return for each property of an entity the commit that set its value in a state.

    Raises `NotFound` if the state does not have the entity.
    """
    table = named_table(start.catalog, type_name)
    walk = EntityWalk(repository, table.type_id, id_, authorize)
    columns = [column for column in table.columns if column.name != "id"]
    # The properties whose commit is still to be found, by the commit at which the search for them stands.
    searched: dict[str, set[str]] = {}
    found: dict[str, tuple[CommitRecord, bool]] = {}
    values: dict[str, Any] = {}
    for step in walk.steps(start.commit):
        if step.commit.id == start.commit.id:
            if step.entity is None:
                raise NotFound(f"no {table.name} has the id '{id_}'", details={"type": table.name, "id": id_})
            rows = step.entity.values
            values = {item.physical: json_values(rows[item.physical], item.type)[0] for item in columns}
            searched[start.commit.id] = set(values)
        here = searched.pop(step.commit.id, set())
        for name in here:
            source = _source_of(walk, step, name)
            if source is None:
                found[name] = step.commit, step.known and not step.gap
            else:
                searched.setdefault(source.id, set()).add(name)
        if not any(searched.values()):
            break
    return [
        FoundOrigin(ENDPOINT_NAMES.get(item.name, item.name), values[item.physical], *found[item.physical])
        for item in columns
    ]


def _source_of(walk: EntityWalk, step: Step, name: str) -> CommitRecord | None:
    """Return the parent from which a commit has the value of a column; None if the commit set it."""
    for commit, entity in step.sources:
        if not step.changed:
            return commit
        if entity is None or step.entity is None:
            continue
        if name not in walk.changed_columns(entity, step.entity):
            return commit
    return None


def _version(walk: EntityWalk, step: Step) -> FoundVersion:
    commit, entity = step.sources[0] if step.sources else (step.commit, None)
    before = None if entity is None else _side(walk, commit, entity)
    after = None if step.entity is None else _side(walk, step.commit, step.entity)
    tables = [None if side is None else side[0] for side in (before, after)]
    names = TypeDiff(tables[0], tables[1], TableDiff(None, None)).names
    changed: tuple[str, ...] = ()
    op: VersionOp = "delete" if after is None else "insert"
    if before is not None and after is not None:
        op = "update"
        columns = walk.changed_columns(before[1], after[1])
        changed = tuple(dict.fromkeys(names[column] for column in columns if column in names))
    elif after is not None and (step.gap or not step.known):
        op = "unknown"
    return FoundVersion(
        step.commit, op, _image(before, names), _image(after, names), changed, step.gap or not step.known
    )


def _side(walk: EntityWalk, commit: CommitRecord, entity: StoredEntity) -> tuple[Table, StoredEntity]:
    table = walk.table(commit)
    assert table is not None, "a state without the type has no entity of it"
    return table, entity


def _image(side: tuple[Table, StoredEntity] | None, names: dict[str, str]) -> Image | None:
    if side is None:
        return None
    table, entity = side
    return next(iter(images(table, entity.values, names)))
