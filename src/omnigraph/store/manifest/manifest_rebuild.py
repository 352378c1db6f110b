"""Rebuilding `__manifest` when its newest version or its registry cannot be read.

The rows of commits are in data files of their own. If only the manifest file of the newest version is damaged, its
rows are still in storage, and the transaction file states which files they are in. If the registry is damaged, the
heads name the branches, and older registries name what never changes. Damaged files are kept in a directory of
their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeVar

from omnigraph.catalog.catalog import Catalog
from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.manifest import PATH, Manifest
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_files import LOG_KINDS, ManifestFile, parse_file
from omnigraph.store.manifest.manifest_inspection import ManifestInspection
from omnigraph.store.manifest.manifest_rows import decode_row
from omnigraph.store.manifest.records import (
    Body,
    BranchEntry,
    CommitRecord,
    DigestRecord,
    HeadRecord,
    RecoveryRecord,
    Registry,
)
from omnigraph.store.objects.object_store import ObjectStore

T = TypeVar("T")

DAMAGED_FOLDER: Final = f"{PATH}/_damaged"


def damaged_versions(inspection: ManifestInspection) -> list[int]:
    """Return the versions after the inspected one, whose manifest file is missing or cannot be read, ascending."""
    names = {item.name for item in inspection.damage}
    return [version for version in inspection.newer_versions if version_file(version) in names]


def rebuild_versions(root: LanceRoot, objects: ObjectStore, inspection: ManifestInspection) -> list[str]:
    """Commit the rows of damaged newest versions again; return the ids of the commits that are visible again.

    The damaged manifest files are moved to a directory of their own first. Nothing else may write meanwhile: a
    damaged newest version stops all writers.
    """
    restored: list[str] = []
    versions = damaged_versions(inspection)
    candidates: dict[int, list[str]] = {}
    # A transaction names the files that it adds and those that it replaces.
    known = {file.name for file in inspection.view.files}
    for version in versions:
        candidates[version] = _changed_files(objects, known, version)
        known.update(candidates[version])
    for version in versions:
        set_aside(objects, f"{PATH}/{version_file(version)}")
    manifest = Manifest(root, root.open(PATH))
    for version in versions:
        change = _change_of(root, candidates[version])
        if change is None or not _follows(manifest, change):
            continue
        view = manifest.view
        heads = {head.incarnation for head in change.heads}
        removed = [file for file in view.of_kind("head") if file.parts[0] in heads]
        removed += view.of_kind("registry") if change.registry is not None else []
        manifest.replace_files(view, removed, change)
        restored += [commit.id for commit in change.commits]
    return restored


def set_aside(objects: ObjectStore, key: str) -> None:
    """Move a damaged file to the directory of damaged files, if it exists."""
    try:
        data = objects.get(key).data
    except NotFound:
        return
    objects.put(f"{DAMAGED_FOLDER}/{key.rpartition('/')[2]}", data)
    objects.delete(key)


def _changed_files(objects: ObjectStore, known: Collection[str], version: int) -> list[str]:
    """Return the data files that a damaged version added, according to its transaction file and those known before.

    A writer that lost a race may have left a transaction file for the same version. The one that the damaged
    manifest file names is selected, and none if that cannot be decided.
    """
    prefix = f"{PATH}/_transactions/{version - 1}-"
    stored = [item.key for item in objects.list(f"{PATH}/_transactions") if item.key.startswith(prefix)]
    data = [item.key.rpartition("/")[2] for item in objects.list(f"{PATH}/data")]
    new = [name for name in data if name not in known]
    named = {key: [name for name in new if name.encode() in objects.get(key).data] for key in stored}
    named = {key: names for key, names in named.items() if names}
    if len(named) > 1:
        try:
            damaged = objects.get(f"{PATH}/{version_file(version)}").data
        except NotFound:
            return []
        named = {
            key: names for key, names in named.items() if any(name.encode() in damaged for name in names)
        }
    return next(iter(named.values())) if len(named) == 1 else []


def _change_of(root: LanceRoot, names: list[str]) -> ManifestChange | None:
    """Return the rows of data files as a change; None if one of them cannot be read, or there is nothing to do."""
    files = [parse_file(0, name, 0) for name in names]
    if any(file.kind in LOG_KINDS and file.level for file in files):
        # The version compacted the log. The files before the compaction are still there.
        return None
    try:
        rows = {file.name: _read_rows(root, file) for file in files}
        registries = _parse(files, rows, "registry", Registry.from_body)
        schemas = [
            (key.partition(":")[2], text)
            for file in files
            if file.kind == "schema"
            for key, text in rows[file.name].items()
        ]
        change = ManifestChange(
            registry=registries[0] if registries else None,
            heads=_parse(files, rows, "head", HeadRecord.from_body),
            commits=_parse(files, rows, "commit", CommitRecord.from_body),
            schemas=dict(schemas),
            recoveries=_parse(files, rows, "recovery", RecoveryRecord.from_body),
            digests=_parse(files, rows, "digests", DigestRecord.from_body),
        )
    except (OmnigraphError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return change if files else None


def _parse(
    files: list[ManifestFile], rows: Mapping[str, Mapping[str, str]], kind: str, parse: Callable[[Body], T]
) -> list[T]:
    return [
        parse(json.loads(text)) for file in files if file.kind == kind for text in rows[file.name].values()
    ]


def _read_rows(root: LanceRoot, file: ManifestFile) -> dict[str, str]:
    """Return the rows of a data file that no version names."""
    table = root.file_session(PATH).open_reader(file.name).read_all().to_table()
    pairs = zip(table["key"].to_pylist(), table["body"].to_pylist(), strict=True)
    return {key: decode_row(file.name, key, body) for key, body in pairs}


def _follows(manifest: Manifest, change: ManifestChange) -> bool:
    """Return whether the heads of a change follow the present heads."""
    for head in change.heads:
        if head.commit not in change.commits:
            # The head of a new branch is a commit of another branch.
            continue
        present = manifest.head(manifest.view, head.incarnation)
        if present is None or head.commit.parent != present.commit.id:
            return False
    return True


# --- the registry -------------------------------------------------------------------------------------------


def rebuild_registry(
    root: LanceRoot, objects: ObjectStore, inspection: ManifestInspection, default: Registry
) -> Registry:
    """Replace a registry that cannot be read by one with the branches of the heads; return it.

    The identity of the graph comes from the newest older registry that can be read, else from `default`. The epoch
    is that of `default`, which must be larger than every epoch before, such as a time.
    """
    older = next(_older_registries(root, objects, inspection), default)
    entries = {entry.incarnation: (name, entry) for name, entry in older.branches.items()}
    commits = {commit.incarnation: commit for commit in inspection.commits()}
    branches: dict[str, BranchEntry] = {}
    for file in inspection.view.of_kind("head"):
        incarnation = file.parts[0]
        head = inspection.heads.get(incarnation)
        known = entries.get(incarnation)
        if known is not None:
            branches[known[0]] = known[1]
        elif head is not None:
            branches[head.branch] = BranchEntry(incarnation, head.commit.created_at)
        elif incarnation in commits:
            branches[commits[incarnation].branch] = BranchEntry(incarnation, commits[incarnation].created_at)
    catalogs = [Catalog.from_json(json.loads(text)) for text in inspection.schemas.values()]
    next_id = max([older.next_id, *(catalog.next_id for catalog in catalogs)])
    registry = Registry(older.format, older.graph_id, older.created_at, branches, default.epoch, next_id)
    manifest = inspection.manifest
    view = inspection.view
    manifest.replace_files(view, view.of_kind("registry"), ManifestChange(registry=registry))
    return registry


def _older_registries(
    root: LanceRoot, objects: ObjectStore, inspection: ManifestInspection
) -> Iterator[Registry]:
    """Yield older registries that can be read, newest first."""
    names = [item.key.rpartition("/")[2] for item in objects.list(f"{PATH}/data")]
    current = {file.name for file in inspection.view.of_kind("registry")}
    for name in sorted((item for item in names if item.startswith("registry-")), reverse=True):
        if name not in current:
            try:
                rows = _read_rows(root, parse_file(0, name, 0))
                yield Registry.from_body(json.loads(next(iter(rows.values()))))
            except (OmnigraphError, OSError, ValueError, KeyError, TypeError, StopIteration):
                continue
