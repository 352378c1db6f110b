"""Repair of indexes: find damaged index files of the branch heads, and build the indexes again from the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.errors import InvalidInput, NotFound, StorageError
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.maintain.table_maintenance import WantedIndex
from omnigraph.maintain.text_indexes import wanted_text_indexes
from omnigraph.store.file_digests import FileDigest
from omnigraph.store.file_verification import ExpectedFile, check_file
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.objects.backend import ObjectInfo
from omnigraph.store.tables.index_segments import index_kind, index_name
from omnigraph.store.tables.staged_table import StagedTable
from omnigraph.store.tables.table_fragments import list_fragments
from omnigraph.store.tables.table_indexes import IndexSegment, list_indexes, list_segments
from omnigraph.store.text.text_index_names import is_text_index

OPERATION = "repair"


@dataclass(frozen=True, slots=True)
class IndexRepair:
    """The damaged indexes of a type at the head of a branch. `properties` are the properties that they index.

    `version` is the number of the version before, and `rebuilt` the number of the version with new indexes, None if
    they were not built.
    """

    branch: str
    type_key: str
    properties: tuple[str, ...]
    problem: str
    version: int
    rebuilt: int | None = None


@dataclass(frozen=True, slots=True)
class _DamagedSegment:
    segment: IndexSegment
    column: str
    kind: str
    problem: str


def repair_indexes(
    repository: Repository, branch: str, *, confirm: bool, actor: str | None = None
) -> list[IndexRepair]:
    """Compare the index files of a branch head with their digests; with `confirm` build damaged indexes again.

    The new indexes are one commit of the branch, with the operation ``repair``. Rows do not change, so writers may
    commit meanwhile. Types whose version cannot be opened are left out.
    """
    if repository.objects.location.scheme == "memory":
        return []
    snapshot = repository.snapshot(branch)
    recorded = _recorded_by_path(repository)
    found: dict[str, list[_DamagedSegment]] = {}
    for key in snapshot.catalog.tables:
        damaged = _damaged_segments(repository, snapshot.pin(key), recorded)
        if damaged:
            found[key] = damaged
    if not found:
        return []
    numbers = _rebuild(repository, branch, list(found), actor) if confirm else {}
    return [
        IndexRepair(
            branch,
            key,
            tuple(sorted({_logical(snapshot.table(key), item.column) for item in damaged})),
            damaged[0].problem,
            snapshot.pin(key).number,
            numbers.get(key),
        )
        for key, damaged in found.items()
    ]


def _rebuild(repository: Repository, branch: str, keys: list[str], actor: str | None) -> dict[str, int]:
    """Build the damaged indexes of types again; return the number of the new version of each."""

    def prepare(transaction: Transaction) -> Prepared[list[str]]:
        recorded = _recorded_by_path(repository)
        done = []
        for key in keys:
            if key in transaction.base.catalog.tables:
                pin = transaction.pin(key)
                damaged = _damaged_segments(repository, pin, recorded)
                try:
                    staged = _stage(repository, pin, damaged, transaction.base.catalog, key)
                except (NotFound, StorageError) as error:
                    if isinstance(error, StorageError) and error.is_refusal:
                        raise
                    # The rows of the type cannot be read either. The indexes of the other types are built.
                    continue
                if staged.version != pin.version:
                    transaction.write(key, staged)
                    done.append(key)
        return Prepared("maintenance" if done else None, done)

    receipt, done = repository.write(branch, WriteRequest(OPERATION, actor=actor, bulk=True), prepare)
    if receipt is None or done is None:
        return {}
    catalog = repository.snapshot(branch).catalog
    return {key: receipt.commit.tables[str(catalog.tables[key].id)].number for key in done}


def _stage(
    repository: Repository, pin: TablePin, damaged: list[_DamagedSegment], catalog: Catalog, key: str
) -> StagedTable:
    """Stage segments over the fragments of damaged segments, in their place.

    A vector index of too few rows is removed; `optimize` builds it again when there are enough. A text index that
    the schema does not declare is removed too.
    """
    texts = wanted_text_indexes(repository.tables, pin, catalog, catalog.tables[key], always=True)
    wanted = {item.name: item for item in texts.values()}
    present = {fragment.id for fragment in list_fragments(repository.tables, pin)}
    built = []
    for column, kind in sorted({(item.column, item.kind) for item in damaged}):
        fragments = {
            id_
            for item in damaged
            if (item.column, item.kind) == (column, kind)
            for id_ in item.segment.fragments
        }
        name = index_name(column, kind)
        if is_text_index(column, name) and name not in wanted:
            continue
        index = wanted.get(name) or WantedIndex(column, kind)
        with suppress(InvalidInput):
            segment = index.build(repository.tables.root, pin, sorted(fragments & present))
            if segment is not None:
                built.append(segment)
    return repository.tables.stage_segments(pin, built, [item.segment.handle for item in damaged])


def _recorded_by_path(repository: Repository) -> Mapping[str, dict[str, FileDigest]]:
    manifest = repository.manifest
    recorded: dict[str, dict[str, FileDigest]] = {}
    for (path, name), digest in manifest.recorded_files(manifest.refresh()).items():
        if name.startswith("_indices/"):
            recorded.setdefault(path, {})[name] = digest
    return recorded


def _damaged_segments(
    repository: Repository, pin: TablePin, recorded: Mapping[str, Mapping[str, FileDigest]]
) -> list[_DamagedSegment]:
    """Return the segments of a version with a file that is missing or differs from what was recorded."""
    try:
        segments = list_segments(repository.tables, pin)
        columns = {item.name: item.columns[0] for item in list_indexes(repository.tables, pin)}
    except NotFound:
        return []
    except StorageError as error:
        if error.is_refusal:
            raise
        return []
    if not segments:
        return []
    digests = recorded.get(pin.path, {})
    listed = repository.objects.list(f"{pin.path}/_indices")
    stored = {item.key.removeprefix(f"{pin.path}/"): item for item in listed}
    damaged = []
    for segment in segments:
        problem = next(_problems(repository, pin, f"_indices/{segment.handle.uuid}/", digests, stored), None)
        if problem is not None:
            column = columns[segment.index]
            damaged.append(_DamagedSegment(segment, column, index_kind(column, segment.index), problem))
    return damaged


def _problems(
    repository: Repository,
    pin: TablePin,
    folder: str,
    digests: Mapping[str, FileDigest],
    stored: Mapping[str, ObjectInfo],
) -> Iterator[str]:
    names = sorted(name for name in {*digests, *stored} if name.startswith(folder))
    if not names:
        yield f"{pin.path}/{folder}: the files do not exist"
    for name in names:
        digest = digests.get(name)
        size, text = (None, None) if digest is None else (digest.size, digest.digest)
        expected = ExpectedFile(pin.path, name, size, text)
        result = check_file(repository.objects, expected, stored.get(name), quick=False)
        if result.damage is not None:
            yield f"{expected.key}: {result.problem}"


def _logical(table: Table, physical: str) -> str:
    return next((column.name for column in table.columns if column.physical == physical), physical)
