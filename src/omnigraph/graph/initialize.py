"""Initialization of a graph: its tables, its first commit, and the manifest that makes them visible."""

from __future__ import annotations

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.columns import arrow_schema
from omnigraph.errors import Conflict, InvalidInput
from omnigraph.graph.branch_names import MAIN
from omnigraph.graph.format_version import CURRENT
from omnigraph.graph.publish import now_micros
from omnigraph.graph.transaction import schema_row
from omnigraph.store.file_digests import FileDigest, format_digests
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.location import Location
from omnigraph.store.manifest.bucket_entries import first_buckets
from omnigraph.store.manifest.manifest import Manifest, NotAGraph, SwapLost, SwapOutcomeUnknown
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_files import BUCKETS, new_id
from omnigraph.store.manifest.records import (
    GENESIS_SEQUENCE,
    BranchEntry,
    CommitRecord,
    HeadRecord,
    Registry,
    TablePin,
)
from omnigraph.store.tables.tables import Tables


def create_manifest(root: LanceRoot, location: Location, catalog: Catalog, actor: str | None) -> Manifest:
    """Create the tables and the manifest of a new graph; `Conflict` if there is a graph at the location.

    Of several concurrent calls one succeeds. A process that dies on the way leaves a root that
    cannot be opened; the next call completes it.
    """
    _check_no_graph(root, location)
    tables = Tables(root)
    commit_id, incarnation, now = new_id(), new_id(), now_micros()
    pins: dict[str, TablePin] = {}
    files: dict[str, tuple[FileDigest, ...]] = {}
    for table in catalog.tables.values():
        # The path contains a new id, so that tables of a concurrent or dead `init` are never used.
        path = f"{table.path}-{new_id()}"
        staged = tables.create(path, arrow_schema(table, physical=True))
        pins[str(table.id)] = staged.pin(commit_id)
        files[path] = staged.files
    schema, payload = schema_row(catalog)
    commit = CommitRecord(
        id=commit_id,
        branch=MAIN,
        incarnation=incarnation,
        sequence=GENESIS_SEQUENCE,
        parent=None,
        merged_parent=None,
        actor=actor,
        operation="init",
        message=None,
        created_at=now,
        schema=schema,
        tables=pins,
        touched=tuple(sorted(pins)),
        files=format_digests(files),
    )
    registry = Registry(CURRENT, new_id(), now, main=incarnation)
    first = ManifestChange(
        registry,
        [HeadRecord(MAIN, incarnation, commit)],
        [commit],
        {schema: payload},
        buckets=first_buckets(BUCKETS, [(MAIN, BranchEntry(incarnation, now, actor))]),
    )
    try:
        return Manifest.create(root, first)
    except (SwapLost, SwapOutcomeUnknown) as error:
        return _resolve(root, registry, location, error)


def _check_no_graph(root: LanceRoot, location: Location) -> None:
    try:
        Manifest.open(root)
    except NotAGraph:
        return
    raise _already_exists(location)


def _resolve(root: LanceRoot, registry: Registry, location: Location, error: Exception) -> Manifest:
    """Find out whether a swap that was lost or unanswered created the graph; return the manifest if it did.

    The graph at the location was created by this call if it has the graph id of `registry`.
    """
    try:
        manifest = Manifest.open(root)
    except NotAGraph:
        if isinstance(error, SwapOutcomeUnknown):
            raise error.error from error
        raise InvalidInput(
            f"{location} holds data that is not a graph", hint="use an empty directory or prefix"
        ) from error
    if manifest.registry(manifest.view).graph_id != registry.graph_id:
        raise _already_exists(location) from error
    return manifest


def _already_exists(location: Location) -> Conflict:
    return Conflict(f"there is a graph at {location} already", details={"uri": str(location)})
