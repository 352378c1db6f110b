"""What loads leave and say, in a form in which two engines can be compared."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

from ulid import ULID

import omnigraph as og
from omnigraph.errors import OmnigraphError
from omnigraph.maintain.cleanup import cleanup
from tests.spark.loads import text_of

# What a report says about how the work was done.
_MANNER = ("engine", "branch", "seconds", "bytes")


def saved(path: Path, records: list[Any]) -> Path:
    path.write_text(text_of(records), encoding="utf-8")
    return path


def lines(graph: og.LocalGraph, branch: str = "main") -> list[Any]:
    """What a branch exports: every row as often as it is there."""
    written = StringIO()
    graph.export(written, branch=branch)
    return sorted(map(json.loads, written.getvalue().splitlines()), key=str)


def loaded_here(graph: og.LocalGraph, source: Any, mode: Any) -> Any:
    """What a load in this process reports or why it is refused."""
    try:
        return figures(graph.load(source, mode, branch="local", engine="local").report())
    except OmnigraphError as error:
        return {"error": error.message}


def figures(report: dict[str, Any]) -> dict[str, Any]:
    """What a report says about the work itself."""
    return {name: value for name, value in report.items() if name not in _MANNER}


def unfinished(graph: og.LocalGraph) -> list[str]:
    """What lies about of loads that are on their way, or never came to an end.

    What was set down after the commit of its own load is left out: that is of an attempt that nobody waited for,
    since a slow task has a twin here.
    """
    root = Path(graph.uri)
    files = [
        path for name in ("__staging", "__recovery") for path in root.glob(f"{name}/**/*") if path.is_file()
    ]
    return sorted(str(path.relative_to(root)) for path in files if not _is_late(graph, path))


def _is_late(graph: og.LocalGraph, path: Path) -> bool:
    if path.parent.parent.name != "__staging":
        return False
    repository = graph._repository
    # A folder is named when its load begins, by an id that tells the time.
    began = ULID.from_str(path.parent.name).timestamp * 1_000_000
    commits = {item.created_at for branch in repository.branches() for item in repository.commits(branch)}
    done = min((moment for moment in commits if moment >= began), default=None)
    return done is not None and path.stat().st_mtime_ns // 1000 >= done


def unneeded(graph: og.LocalGraph) -> set[str]:
    """The files of rows that are of no use to the head of any branch."""
    root = Path(graph.uri)
    repository = graph._repository
    found = {str(path.relative_to(root)) for path in root.glob("*/*/data/*") if path.is_file()}
    for branch in repository.branches():
        snapshot = repository.snapshot(branch)
        for key in snapshot.catalog.tables:
            pin = snapshot.pin(key)
            for fragment in snapshot.tables.open(pin.path, pin.version).get_fragments():
                found -= {f"{pin.path}/data/{file.path}" for file in fragment.metadata.files}
    return found


def clean(graph: og.LocalGraph) -> None:
    """Remove all that nothing but older commits needs, however young it is."""
    cleanup(graph._repository, keep=1, confirm=True, grace=timedelta(0))
