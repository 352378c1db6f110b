"""The migration of a graph of format 1 and the recording of its digests, as work of a traced process."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import omnigraph as og
from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.graph.repository import Repository
from omnigraph.maintain.verification.verify import verify
from omnigraph.maintain.verification.verify_options import VerifyOptions
from omnigraph.store.file_digests import FileDigest
from tests.fixtures.formats.build import FOLDER, rows_of

BRANCHES: Final = ("main", "open", "trial")


def migrate(uri: str, options: Mapping[str, str]) -> str:
    """Open a graph for writing, which migrates it; return the number of its format."""
    with closing(Repository.open(uri, options=options)) as graph:
        return str(graph.manifest.registry(graph.manifest.view).format)


def record(uri: str, options: Mapping[str, str]) -> str:
    """Verify all commits and record missing digests, as `verify --record` does; return the number of new ones."""
    with closing(Repository.open(uri, options=options)) as graph:
        request = VerifyOptions(all_commits=True, record=True)
        report = verify(graph.tables.root, graph.objects, request)
        assert report.ok, report.damage
        return str(report.recorded)


UPGRADES: Final[dict[str, Callable[[str, Mapping[str, str]], str]]] = {
    "migrate": migrate,
    "verify-record": record,
}


@dataclass(frozen=True, slots=True)
class Upgraded:
    """The state of a graph that is upgraded: its format, the recorded digests, and its rows by branch."""

    format: int
    digests: dict[tuple[str, str], FileDigest]
    rows: dict[str, Any]


def prepare_upgrade(kind: str, folder: Path) -> Path:
    """Return the graph that an upgrade starts from: that of format 1, migrated if digests are to be recorded."""
    with tarfile.open(FOLDER / "format-1.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    if kind != "migrate":
        migrate(str(folder / "graph"), {})
    return folder / "graph"


def observe_upgrade(uri: str, options: Mapping[str, str] | None = None) -> Upgraded:
    """Return the state of a graph without changing it."""
    with og.open(uri, mode="r", storage_options=options) as graph:
        assert isinstance(graph, LocalGraph)
        manifest = graph._repository.manifest
        view = manifest.refresh()
        return Upgraded(
            manifest.registry(view).format,
            dict(manifest.recorded_files(view)),
            {branch: rows_of(graph, branch=branch) for branch in BRANCHES},
        )
