"""A swap that storage refuses for a permanent cause ends at once with an honest error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from omnigraph.errors import StorageError
from tests.support.repositories import handle, make_graph, people, put


@contextmanager
def blocked_commits(root: Path) -> Iterator[None]:
    """A file in the place of a directory: data files can be written to `__manifest`, commits cannot."""
    folder = root / "__manifest" / "_transactions"
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.write_text("")
    try:
        yield
    finally:
        folder.unlink()
        aside.rename(folder)


def test_publish_refused_by_the_disk_raises_storage_error_and_commits_nothing(tmp_path: Path) -> None:
    graph = make_graph(str(tmp_path / "graph"))
    put(graph, {"a": "Ana"})
    before = graph.head().commit.id
    with (
        blocked_commits(tmp_path / "graph"),
        pytest.raises(StorageError, match="was not published") as caught,
    ):
        put(graph, {"b": "Bob"})
    assert caught.value.kind == "configuration"
    assert caught.value.details["branch"] == "main"
    assert handle(graph, "r").head().commit.id == before
    put(graph, {"b": "Bob"})
    assert people(handle(graph, "r")) == {"a": "Ana", "b": "Bob"}


def test_branch_creation_refused_by_the_disk_raises_storage_error_and_creates_nothing(tmp_path: Path) -> None:
    graph = make_graph(str(tmp_path / "graph"))
    with blocked_commits(tmp_path / "graph"), pytest.raises(StorageError) as caught:
        graph.create_branch("trial")
    assert caught.value.kind == "configuration"
    assert list(handle(graph, "r").branches()) == ["main"]
    graph.create_branch("trial")
    assert list(handle(graph, "r").branches()) == ["main", "trial"]
