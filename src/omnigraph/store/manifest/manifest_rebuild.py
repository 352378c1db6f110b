"""Rebuilding `__manifest` when its newest version or its registry cannot be read.

The rows of commits are in data files of their own. If only the manifest file of the newest version is damaged, its
rows are still in storage, and the transaction file states which files they are in. If the registry is damaged, the
heads name the branches, and older registries name what never changes. Damaged files are kept in a directory of
their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from omnigraph.catalog.catalog import Catalog
from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.bucket_entries import first_buckets, parse_bucket
from omnigraph.store.manifest.manifest import PATH, Manifest
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_files import (
    BUCKET_KINDS,
    BUCKETS,
    LOG_KINDS,
    RECLAIMED,
    TAGS,
    ManifestFile,
    parse_file,
)
from omnigraph.store.manifest.manifest_inspection import ManifestInspection
from omnigraph.store.manifest.manifest_rows import decode_row
from omnigraph.store.manifest.name_buckets import Bucket
from omnigraph.store.manifest.records import (
    MAIN_BRANCH,
    Body,
    BranchEntry,
    CommitRecord,
    DigestRecord,
    HeadRecord,
    RecoveryRecord,
    Registry,
    TagEntry,
    encode_body,
)
from omnigraph.store.manifest.version_digests import forget_version_digests
from omnigraph.store.objects.object_store import ObjectStore

T = TypeVar("T")

# The first format whose branches are in buckets.
BUCKET_FORMAT: Final = 3
# The first format with tags.
TAG_FORMAT: Final = 4
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
    candidates: dict[int, _ChangedFiles] = {}
    # A transaction names the files that it adds and those that it replaces.
    known = {file.name for file in inspection.view.files}
    for version in versions:
        candidates[version] = _changed_files(objects, known, version)
        known.update(candidates[version].added)
    if versions:
        forget_version_digests(root, objects)
    for version in versions:
        set_aside(objects, f"{PATH}/{version_file(version)}")
    manifest = Manifest(root, root.open(PATH))
    for version in versions:
        changed = candidates[version]
        change = _change_of(root, changed.added)
        if change is None or not _follows(manifest, change):
            continue
        view = manifest.view
        heads = {head.incarnation for head in change.heads}
        removed = [file for file in view.files if _is_replaced(file, changed, change, heads)]
        manifest.replace_files(view, removed, change)
        restored += [commit.id for commit in change.commits]
    return restored


def _is_replaced(
    file: ManifestFile, changed: _ChangedFiles, change: ManifestChange, heads: Collection[str]
) -> bool:
    """Return whether a change replaces a file. Transactions of earlier releases name no replaced files."""
    if file.kind == "head":
        return file.parts[0] in heads or file.name in changed.replaced
    if file.kind == "registry":
        return change.registry is not None
    return file.name in changed.replaced


def set_aside(objects: ObjectStore, key: str) -> None:
    """Move a damaged file to the directory of damaged files, if it exists."""
    try:
        data = objects.get(key).data
    except NotFound:
        return
    objects.put(f"{DAMAGED_FOLDER}/{key.rpartition('/')[2]}", data)
    objects.delete(key)


@dataclass(frozen=True, slots=True)
class _ChangedFiles:
    """The names of the data files that a transaction adds, and of those that it replaces."""

    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)


def _changed_files(objects: ObjectStore, known: Collection[str], version: int) -> _ChangedFiles:
    """Return the data files that a damaged version added and replaced, according to its transaction file.

    A writer that lost a race may have left a transaction file for the same version. The one that the damaged
    manifest file names is selected, and none if that cannot be decided.
    """
    prefix = f"{PATH}/_transactions/{version - 1}-"
    stored = [item.key for item in objects.list(f"{PATH}/_transactions") if item.key.startswith(prefix)]
    texts = {key: objects.get(key).data for key in stored}
    data = [item.key.rpartition("/")[2] for item in objects.list(f"{PATH}/data")]
    new = [name for name in data if name not in known]
    added = {key: [name for name in new if name.encode() in text] for key, text in texts.items()}
    added = {key: names for key, names in added.items() if names}
    if len(added) > 1:
        try:
            damaged = objects.get(f"{PATH}/{version_file(version)}").data
        except NotFound:
            return _ChangedFiles()
        added = {
            key: names for key, names in added.items() if any(name.encode() in damaged for name in names)
        }
    if len(added) != 1:
        return _ChangedFiles()
    ((key, names),) = added.items()
    return _ChangedFiles(names, [name for name in known if name.encode() in texts[key]])


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
            buckets=[parse_bucket(file, rows[file.name]) for file in files if file.kind in BUCKET_KINDS],
            reclaimed={
                key: text for file in files if file.kind == RECLAIMED for key, text in rows[file.name].items()
            },
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
        present = manifest.head(manifest.view, head.branch, head.incarnation)
        if present is None or head.commit.parent != present.commit.id:
            return False
    return True


# --- the registry -------------------------------------------------------------------------------------------


def rebuild_registry(
    root: LanceRoot, objects: ObjectStore, inspection: ManifestInspection, default: Registry
) -> Registry:
    """Replace a registry that cannot be read; return the new one.

    The identity of the graph comes from the newest older registry that can be read, else from `default`. The epoch
    is that of `default`, which must be larger than every epoch before, such as a time.
    """
    older = next(_older_registries(root, objects, inspection), default)
    catalogs = [Catalog.from_json(json.loads(text)) for text in inspection.schemas.values()]
    next_id = max([older.next_id, *(catalog.next_id for catalog in catalogs)])
    manifest, view = inspection.manifest, inspection.view
    main = inspection.branches.get(MAIN_BRANCH)
    legacy = None if view.buckets.files else _branches_of_heads(inspection, older.legacy_branches or {})
    # Only formats before 3 have no buckets, and only later formats have them.
    least = TAG_FORMAT if view.of_kind(TAGS) else BUCKET_FORMAT
    format_ = max(older.format, least) if legacy is None else min(older.format, BUCKET_FORMAT - 1)
    registry = Registry(
        format_,
        older.graph_id,
        older.created_at,
        default.epoch,
        next_id,
        main=None if legacy is not None or main is None else main.incarnation,
        legacy_branches=legacy,
        settings=older.settings,
        # The last fence is not known. The epoch is a number that no fence had before.
        fence=default.epoch,
    )
    manifest.replace_files(view, view.of_kind("registry"), ManifestChange(registry=registry))
    return registry


def rebuild_buckets(root: LanceRoot, objects: ObjectStore, inspection: ManifestInspection) -> list[str]:
    """Replace the buckets of branches that cannot be read; return the names of the branches that were found.

    The entries come from an older file of the same bucket and from the heads. A branch that the last change of the
    bucket created is found only if it has a head file. A branch that this change deleted is there again.
    """
    manifest, view, index = inspection.manifest, inspection.view, inspection.view.buckets
    damaged = set(inspection.unreadable(BUCKETS))
    newest = _newest_commits(inspection)
    names: list[str] = []
    buckets: list[Bucket] = []
    for position, file in enumerate(index.files):
        if file not in damaged:
            continue
        entries = next(_older_entries(root, objects, file, BranchEntry.from_body), {})
        for head in inspection.heads.values():
            if index.find(head.branch) == position:
                entries.setdefault(head.branch, BranchEntry(head.incarnation, head.commit.created_at))
        bucket = Bucket(file.lower_bound)
        for name, entry in sorted(entries.items()):
            if index.find(name) != position:
                continue
            is_moving = view.head_file(entry.incarnation) is not None
            commit = newest.get(entry.incarnation, entry.commit)
            if is_moving or commit is not None:
                entry = replace(entry, commit=None if is_moving else commit)
                bucket = bucket.with_row(name, encode_body(entry.to_body()))
        names += bucket.names
        buckets.append(bucket)
    manifest.replace_files(view, damaged, ManifestChange(buckets=buckets))
    return names


def rebuild_tags(root: LanceRoot, objects: ObjectStore, inspection: ManifestInspection) -> list[str]:
    """Replace the buckets of tags, some of which cannot be read; return the names of the tags that were found.

    The entries come from an older file of the same bucket. A tag that only the last change of the bucket created is
    lost. A tag that this change deleted is there again, unless a branch has its name now.
    """
    manifest, view = inspection.manifest, inspection.view
    found: dict[str, TagEntry] = {}
    for file in inspection.unreadable(TAGS):
        found |= next(_older_entries(root, objects, file, TagEntry.from_body), {})
    found = {
        name: entry
        for name, entry in found.items()
        if name not in inspection.tags
        and name not in inspection.branches
        and manifest.find_commit(view, entry.commit) is not None
    }
    change = ManifestChange(
        registry=manifest.registry(view).with_next_epoch(),
        buckets=first_buckets(TAGS, (inspection.tags | found).items()),
    )
    manifest.replace_files(view, [*view.of_kind("registry"), *view.of_kind(TAGS)], change)
    return sorted(found)


def _newest_commits(inspection: ManifestInspection) -> dict[str, str]:
    """Return the newest commit of each incarnation."""
    newest: dict[str, CommitRecord] = {}
    for commit in inspection.commits():
        known = newest.get(commit.incarnation)
        if known is None or commit.sequence > known.sequence:
            newest[commit.incarnation] = commit
    return {incarnation: commit.id for incarnation, commit in newest.items()}


def _older_entries(
    root: LanceRoot, objects: ObjectStore, file: ManifestFile, parse: Callable[[Body], T]
) -> Iterator[dict[str, T]]:
    """Yield the entries of older files of a bucket that can be read, newest first."""
    prefix = f"{file.kind}-{file.parts[0]}-"
    names = [item.key.rpartition("/")[2] for item in objects.list(f"{PATH}/data")]
    for name in sorted((item for item in names if item.startswith(prefix)), reverse=True):
        if name != file.name:
            try:
                older = parse_file(0, name, 0)
                bucket = parse_bucket(older, _read_rows(root, older))
                texts = zip(bucket.names, bucket.rows.values(), strict=True)
                yield {key: parse(json.loads(text)) for key, text in texts}
            except (OmnigraphError, OSError, ValueError, KeyError, TypeError):
                continue


def _branches_of_heads(
    inspection: ManifestInspection, older: Mapping[str, BranchEntry]
) -> dict[str, BranchEntry]:
    """Return the branches of a graph of a format before 3 from its head files."""
    entries = {entry.incarnation: (name, entry) for name, entry in older.items()}
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
    return branches


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
