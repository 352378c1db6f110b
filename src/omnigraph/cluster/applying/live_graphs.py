"""The graphs of a cluster as they are in storage: observe, create, migrate and delete one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from omnigraph.api.entry import init as init_graph
from omnigraph.api.entry import open as open_graph
from omnigraph.catalog.migration.planner import plan_migration
from omnigraph.catalog.migration.step_text import step_text
from omnigraph.cluster.configuration.declared_files import decode
from omnigraph.cluster.configuration.model import DeclaredFile
from omnigraph.cluster.diagnostics import reason
from omnigraph.cluster.digests import digest_of
from omnigraph.cluster.ledger.lock import timestamp
from omnigraph.cluster.ledger.storage import ClusterStorage
from omnigraph.cluster.planning.changes import Migration
from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.graph.recovery.leases import find_leases
from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.pg.schema_compiler import load_schema

if TYPE_CHECKING:
    from omnigraph.catalog.catalog import Catalog

# `absent`: nothing is stored. `interrupted`: an `init` has not finished. `partial`: files that are not a graph.
Presence: TypeAlias = Literal["absent", "interrupted", "partial", "open", "unreadable"]
# The directories that an unfinished `init` leaves. The next one completes the graph.
_INIT_FOLDERS: Final = ("nodes/", "edges/", "__manifest/")
FIRST_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class LiveGraph:
    """A graph as it was observed. An open graph has a version, the text of its schema and its catalog."""

    graph: str
    presence: Presence
    version: int | None = None
    source: str | None = None
    catalog: Catalog | None = field(default=None, repr=False)
    error: str | None = None

    def schema_digest(self, declared: DeclaredFile | None = None) -> str | None:
        """Return the digest of the live schema.

        A graph keeps the text of the schema that it was last migrated to. If only comments or formatting differ
        from a declared file, there is nothing to migrate, and the digest is that of the file.
        """
        if self.source is None:
            return None
        migration = None if declared is None else self.migration_to(declared)
        if declared is not None and migration is not None and not migration.steps:
            return declared.digest
        return digest_of(self.source.encode())

    def migration_to(self, declared: DeclaredFile) -> Migration | None:
        """Return the migration to a declared schema; None if the graph is not open or the file is invalid."""
        if self.catalog is None:
            return None
        try:
            schema = load_schema(decode(declared.data, declared.path), str(declared.path))
        except LanguageError:
            return None
        plan = plan_migration(self.catalog, schema)
        return Migration(
            plan.supported,
            tuple(step.to_json() for step in plan.steps),
            tuple(step_text(step) for step in plan.steps),
        )

    def to_observation(self, storage: ClusterStorage, declared: DeclaredFile | None) -> dict[str, Any]:
        """Return the observation that the ledger records."""
        digest = self.schema_digest(declared)
        desired = None if declared is None else declared.digest
        return {
            "kind": "graph",
            "address": f"graph.{self.graph}",
            "graph_uri": storage.graph_uri(self.graph),
            "observed_at": timestamp(),
            "exists": self.presence == "open",
            "graph_manifest_version": self.version,
            "schema_digest": digest,
            "desired_schema_digest": desired,
            "schema_matches_desired": None if digest is None or desired is None else digest == desired,
            "error": self.error,
        }


def observe_graph(storage: ClusterStorage, graph: str) -> LiveGraph:
    """Open a graph for reading and return what it is. A failure is part of the result."""
    try:
        with open_graph(storage.graph_uri(graph), "r", storage_options=storage.options) as found:
            snapshot = found.snapshot()
            catalog = snapshot.catalog
            return LiveGraph(graph, "open", snapshot.commit.sequence, catalog.source, catalog)
    except NotFound:
        return _observe_files(storage, graph)
    except OmnigraphError as failure:
        return LiveGraph(graph, "unreadable", error=reason(failure))


def _observe_files(storage: ClusterStorage, graph: str) -> LiveGraph:
    try:
        keys = [info.key for info in storage.graph_objects(graph).list()]
    except OmnigraphError as failure:
        return LiveGraph(graph, "unreadable", error=reason(failure))
    if not keys:
        return LiveGraph(graph, "absent")
    if all(key.startswith(_INIT_FOLDERS) for key in keys):
        return LiveGraph(graph, "interrupted", error="its creation was interrupted")
    example = next(key for key in keys if not key.startswith(_INIT_FOLDERS))
    return LiveGraph(graph, "partial", error=f"there are files that are not a graph, such as {example}")


def create_graph(storage: ClusterStorage, graph: str, schema: DeclaredFile, actor: str | None) -> None:
    """Create a graph with its declared schema, or complete an interrupted creation."""
    text = _schema_text(schema)
    init_graph(
        storage.graph_uri(graph), text, actor=actor, storage_options=storage.options, upkeep="off"
    ).close()


def migrate_graph(storage: ClusterStorage, graph: str, schema: DeclaredFile, actor: str | None) -> None:
    """Apply a declared schema to the main branch. Other branches keep their schema until they are merged."""
    with open_graph(
        storage.graph_uri(graph), actor=actor, storage_options=storage.options, upkeep="off"
    ) as found:
        found.schema.apply(_schema_text(schema), message="cluster apply")


def find_readers(storage: ClusterStorage, graph: str) -> int:
    """Return the number of running exports, copies and other long reads of a graph."""
    return len(find_leases(storage.graph_objects(graph)).live)


def delete_graph(storage: ClusterStorage, graph: str) -> None:
    """Delete everything of a graph. The manifest is deleted first, so that no reader sees a part of the graph."""
    objects = storage.graph_objects(graph)
    objects.delete_many([info.key for info in objects.list("__manifest")])
    objects.delete_tree()


def _schema_text(schema: DeclaredFile) -> str:
    """Return the text of a schema. The library would take a text that ends in `.pg` for a path."""
    text = decode(schema.data, schema.path)
    return f"{text}\n" if text.endswith(".pg") else text
