"""Tags from a remote handle are those of the graph."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import omnigraph as og
from omnigraph.client.graph import RemoteGraph
from omnigraph.errors import Conflict, NotFound, PermissionDenied
from tests.client.conftest import Served
from tests.server.running import ADD, ALL


def test_remote_tags_are_those_of_the_graph(local: og.Graph, remote: RemoteGraph) -> None:
    before = local.query(ALL)
    made = remote.tags.create("v1", message="first")
    assert local.tags.list() == remote.tags.list() == [made]
    assert (made.commit_id, made.actor, made.message) == (local.commits()[0].id, "ann", "first")
    local.mutate(ADD, {"n": "Zoe", "a": 2})
    assert remote.query(ALL, at="v1").rows() == before.rows()
    assert [change.id for change in remote.diff("v1", "main")] == ["Zoe"]
    newest = local.commits()[0]
    for name, state in (("v2", newest), ("v3", datetime.now(UTC)), ("v4", remote.snapshot())):
        assert remote.tags.create(name, state).commit_id == newest.id
    for after, limit in ((None, 0), ("v1", 1), ("v3", None)):
        assert remote.tags.list(after=after, limit=limit) == local.tags.list(after=after, limit=limit)
    with pytest.raises(Conflict, match="already exists"):
        remote.tags.create("v1")
    remote.tags.delete("v1")
    with pytest.raises(NotFound):
        remote.tags.delete("v1")


def test_remote_tags_need_the_permissions_of_branches(served: Served) -> None:
    served.local.tags.create("v1")
    with served.connect("bob") as reader:
        assert [tag.name for tag in reader.tags.list()] == ["v1"]
        with pytest.raises(PermissionDenied, match="branch_create"):
            reader.tags.create("v2")
        with pytest.raises(PermissionDenied, match="branch_delete"):
            reader.tags.delete("v1")
