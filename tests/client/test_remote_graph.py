"""A graph over HTTP and the same graph at hand: the same calls, the same results, the same errors."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import threading
from datetime import UTC, date, datetime, timedelta

import pytest

import omnigraph as og
from omnigraph.api.graph import Graph
from omnigraph.api.interface.branches import Branches
from omnigraph.api.interface.embeddings import Embeddings
from omnigraph.api.interface.schemas import SchemaView
from omnigraph.api.interface.tags import Tags
from omnigraph.api.local.local_branches import LocalBranches
from omnigraph.api.local.local_changes import LocalDiff
from omnigraph.api.local.local_embeddings import LocalEmbeddings
from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.api.local.local_schema import LocalSchemaView
from omnigraph.api.local.local_tags import LocalTags
from omnigraph.api.results.changes import Diff
from omnigraph.client.branches import RemoteBranches
from omnigraph.client.changes import RemoteDiff
from omnigraph.client.embeddings import RemoteEmbeddings
from omnigraph.client.entry import ServedGraph, list_graphs
from omnigraph.client.graph import RemoteGraph
from omnigraph.client.schemas import RemoteSchemaView
from omnigraph.client.stored_query_calls import QueryParam
from omnigraph.client.tags import RemoteTags
from omnigraph.errors import InvalidInput, NotFound, OmnigraphError, PermissionDenied
from tests.client.comparing import WIDER
from tests.client.conftest import Served
from tests.server.running import ADD, ALL, SCHEMA, TOKENS, Running

IMPLEMENTATIONS = (
    (Graph, LocalGraph, RemoteGraph),
    (Branches, LocalBranches, RemoteBranches),
    (Tags, LocalTags, RemoteTags),
    (SchemaView, LocalSchemaView, RemoteSchemaView),
    (Embeddings, LocalEmbeddings, RemoteEmbeddings),
    (Diff, LocalDiff, RemoteDiff),
)


class TestMembers:
    @pytest.mark.parametrize(("interface", "local", "remote"), IMPLEMENTATIONS)
    def test_graph_classes_override_only_abstract_methods(
        self, interface: type, local: type, remote: type
    ) -> None:
        abstract = interface.__abstractmethods__  # type: ignore[attr-defined]
        for name, member in inspect.getmembers(interface):
            if name.startswith("__") or not (inspect.isfunction(member) or isinstance(member, property)):
                continue
            for kind in (local, remote):
                is_own = inspect.getattr_static(kind, name) is not inspect.getattr_static(interface, name)
                assert is_own == (name in abstract), (kind, name)

    @pytest.mark.parametrize(("interface", "local", "remote"), IMPLEMENTATIONS)
    def test_graph_classes_take_the_arguments_of_the_interface(
        self, interface: type, local: type, remote: type
    ) -> None:
        for name in interface.__abstractmethods__:  # type: ignore[attr-defined]
            member = getattr(interface, name)
            if not isinstance(member, property):
                expected = list(inspect.signature(member).parameters)
                for kind in (local, remote):
                    assert list(inspect.signature(getattr(kind, name)).parameters) == expected, (kind, name)

    def test_async_connect_takes_the_same_arguments(self) -> None:
        assert inspect.signature(og.aio.connect).parameters == inspect.signature(og.connect).parameters

    def test_remote_graph_has_the_attributes_of_a_local_one(
        self, remote_team: RemoteGraph, team: Served
    ) -> None:
        graphs = (remote_team, team.local)
        names = [{name for name in vars(graph) if not name.startswith("_")} for graph in graphs]
        assert names[0] == names[1] == {"branches", "embeddings", "schema", "tags"}


class TestConnecting:
    def test_connect_returns_a_graph_with_actor_and_uri(self, remote_team: RemoteGraph, team: Served) -> None:
        assert isinstance(remote_team, og.Graph)
        assert remote_team.actor == "ann"
        assert remote_team.uri == f"{team.url}/graphs/team"

    def test_connect_to_missing_graph_raises_not_found(self, server: Running) -> None:
        with pytest.raises(NotFound, match="graph 'nobody' not found"):
            og.connect(server.url, "nobody", token=TOKENS["ann"])

    def test_connect_with_invalid_graph_id_is_refused(self, server: Running) -> None:
        with pytest.raises(InvalidInput, match="graph id"):
            og.connect(server.url, "no/body", token=TOKENS["ann"])

    @pytest.mark.parametrize("token", [None, "wrong"])
    def test_connect_with_wrong_token_is_denied_without_repeating_it(
        self, server: Running, token: str | None
    ) -> None:
        with pytest.raises(PermissionDenied, match="bearer token") as caught:
            og.connect(server.url, "team", token=token)
        assert "wrong" not in str(caught.value)

    def test_repr_does_not_show_the_token(self, remote_team: RemoteGraph) -> None:
        for shown in (
            remote_team,
            remote_team.branches,
            remote_team.schema,
            remote_team._transport,
            remote_team.diff("main", "main"),
        ):
            assert TOKENS["ann"] not in repr(shown)
        assert repr(remote_team) == f"RemoteGraph({remote_team.uri!r})"

    def test_pickle_of_remote_graph_reconnects(self, remote_team: RemoteGraph) -> None:
        with pickle.loads(pickle.dumps(remote_team)) as again:
            assert isinstance(again, RemoteGraph)
            assert (again.uri, again.actor) == (remote_team.uri, remote_team.actor)
            assert again.branches.list() == ["main"]

    def test_call_after_close_is_refused_and_close_is_idempotent(self, team: Served) -> None:
        graph = team.connect()
        graph.close()
        graph.close()
        with pytest.raises(InvalidInput, match="closed"):
            graph.branches.list()

    def test_remote_graph_is_shared_by_threads(self, remote_team: RemoteGraph) -> None:
        found: list[int] = []
        threads = [
            threading.Thread(target=lambda: found.append(len(remote_team.query(ALL)))) for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [2] * 16

    def test_actor_of_a_call_must_be_that_of_the_token(self, remote: RemoteGraph) -> None:
        done = remote.mutate(ADD, {"n": "Cid"}, actor="ann").commit
        assert done is not None
        assert done.actor == "ann"
        for act in (
            lambda: remote.acting_as("bob"),
            lambda: remote.mutate(ADD, {"n": "Dan"}, actor="bob"),
            lambda: remote.load([], actor="bob"),
            lambda: remote.revert("x", actor="bob"),
            lambda: remote.optimize(actor="bob"),
            lambda: remote.branches.create("x", actor="bob"),
            lambda: remote.branches.merge("x", actor="bob"),
            lambda: remote.schema.apply(WIDER, actor="bob"),
        ):
            with pytest.raises(InvalidInput, match="the token determines the actor"):
                act()

    @pytest.mark.parametrize("actor", [None, "ann"])
    def test_acting_as_the_same_actor_returns_a_view(
        self, remote_team: RemoteGraph, actor: str | None
    ) -> None:
        with remote_team.acting_as(actor) as view:
            assert view.actor == "ann"
        assert remote_team.branches.list() == ["main"]

    def test_branches_are_listed_in_pages(self, local: og.Graph, remote: RemoteGraph) -> None:
        for name in ("agent/1", "agent/2", "zoo"):
            local.branches.create(name)
        for prefix in ("", "agent/", "x"):
            for after in (None, "", "agent/1", "n"):
                for limit in (None, 0, 1, 2, 9):
                    page = remote.branches.list(prefix=prefix, after=after, limit=limit)
                    assert page == local.branches.list(prefix=prefix, after=after, limit=limit)
        assert remote.branches.list(prefix="agent/", after="agent/1", limit=5) == ["agent/2"]

    def test_list_graphs_requires_permission(self, server: Running) -> None:
        found = list_graphs(server.url, TOKENS["ann"])
        assert ServedGraph("team", server.hosted.graphs["team"].graph.uri) in found
        with pytest.raises(PermissionDenied, match="graph_list"):
            list_graphs(server.url, TOKENS["bob"])


class TestReads:
    def test_query_returns_the_rows_of_a_local_graph(self, remote: RemoteGraph, local: Graph) -> None:
        first = local.commits()[0]
        local.mutate(ADD, {"n": "Zoe", "a": 40})
        local.branches.create("review")
        local.mutate(ADD, {"n": "Yan"}, branch="review")
        between = first.created_at + timedelta(milliseconds=1)
        for at in (
            {},
            {"branch": "review"},
            {"at": first.id},
            {"at": local.snapshot("review")},
            {"at": between},
            {"at": between.replace(tzinfo=None)},
            {"at": datetime.now(UTC), "branch": "review"},
        ):
            assert remote.query(ALL, **at) == local.query(ALL, **at), at
            assert remote.query(ALL, **at).types == local.query(ALL, **at).types
            assert remote.explain(ALL, **at) == local.explain(ALL, **at)
            assert remote.get("Person", "Zoe", **at) == local.get("Person", "Zoe", **at)
            assert remote.indexes(**at) == local.indexes(**at)
        assert [row["name"] for row in remote.query(ALL, branch="review")] == ["Ann", "Bob", "Yan", "Zoe"]

    def test_query_sends_parameters_of_every_type(self, remote: RemoteGraph, local: Graph) -> None:
        import numpy as np

        local.schema.apply(
            SCHEMA + "node Day { on: Date @key  at: DateTime?  raw: Blob?  v: Vector(2)?  n: I64? }"
        )
        add = (
            "query add($on: Date, $at: DateTime, $v: Vector(2), $n: I64) "
            "{ insert Day { on: $on, at: $at, v: $v, n: $n } }"
        )
        given = {
            "at": datetime(2024, 5, 1, 12, 30, tzinfo=UTC),
            "v": np.array([0.5, 1.5], np.float32),
            "n": np.int64(2**60),
        }
        remote.mutate(add, {"on": date(2024, 1, 31), **given})
        local.mutate(add, {"on": date(2024, 2, 1), **given})
        found = "query days() { match { $d: Day } return { $d.at as at, $d.v as v, $d.n as n } }"
        one, other = remote.query(found).rows()
        assert one == other
        assert one["n"] == 2**60

    def test_snapshot_lists_its_tables_and_names_a_state(self, remote: RemoteGraph, local: Graph) -> None:
        kept = remote.snapshot()
        local.mutate(ADD, {"n": "Zoe"})
        assert kept.commit_id != local.snapshot().commit_id
        there = local.snapshot(at=kept.commit_id)
        assert (kept.commit, kept.catalog, kept.types, kept.branch) == (
            there.commit,
            there.catalog,
            there.types,
            "main",
        )
        assert len(remote.query(ALL, at=kept)) == 2
        assert remote.snapshot(at=kept).commit_id == kept.commit_id
        with pytest.raises(OmnigraphError):
            kept.scan("node:Person")

    def test_spark_call_is_refused_with_a_hint(self, remote_team: RemoteGraph) -> None:
        for ask in (
            lambda: remote_team.query(ALL, engine="spark"),
            lambda: remote_team.query(ALL, spark="local[2]"),
            lambda: remote_team.optimize(engine="spark"),
            lambda: remote_team.optimize(spark="local[2]"),
        ):
            with pytest.raises(InvalidInput, match="Spark") as caught:
                ask()
            assert "open the graph by the address of its storage" in str(caught.value.hint)
        with pytest.raises(InvalidInput, match="unknown engine 'gpu'"):
            remote_team.query(ALL, engine="gpu")  # type: ignore[arg-type]
        assert len(remote_team.query(ALL, engine="local")) == 2


class TestStoredQueries:
    def test_stored_queries_are_listed(self, remote_team: RemoteGraph) -> None:
        found = {entry.name: entry for entry in remote_team.queries()}
        assert list(found) == ["everybody", "hire", "older"]
        assert (found["everybody"].description, found["hire"].mutation) == ("All people.", True)
        assert found["older"].params[1] == QueryParam("names", "list", True, item_kind="string")

    def test_stored_query_runs_by_name(self, remote: RemoteGraph, local: Graph) -> None:
        first = local.commits()[0].id
        found = remote.invoke("older", {"a": 26})
        assert isinstance(found, og.Result)
        assert found.rows() == [{"name": "Ann"}]
        done = remote.invoke("hire", {"n": "Zoe"}, if_commit=first)
        assert isinstance(done, og.Receipt)
        assert done.commit == local.commits()[0]
        for at, count in ((first, 2), (None, 3)):
            found = remote.invoke("everybody", at=at)
            assert isinstance(found, og.Result)
            assert len(found) == count

    def test_stored_query_with_invalid_call_is_refused(self, remote_team: RemoteGraph, team: Served) -> None:
        with pytest.raises(NotFound, match="stored query not found"):
            remote_team.invoke("nothing/at all")
        with pytest.raises(InvalidInput, match="cannot be conditional"):
            remote_team.invoke("everybody", if_commit="x")
        with pytest.raises(InvalidInput, match="parameters must be an object"):
            remote_team.invoke("everybody", ["x"])  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="does not take `snapshot`"):
            remote_team.invoke("hire", {"n": "x"}, at="x")
        with pytest.raises(InvalidInput, match="is a mutation"):
            remote_team.invoke("hire", {"n": "x"}, expect_mutation=False)
        with team.connect("eve") as graph, pytest.raises(NotFound, match="stored query not found"):
            graph.invoke("everybody")
        with team.connect("bob") as graph, pytest.raises(PermissionDenied, match="change"):
            graph.invoke("hire", {"n": "x"})


def test_async_remote_graph_returns_the_same(served: Served) -> None:
    async def work() -> None:
        async with og.aio.connect(served.url, served.graph_id, token=TOKENS["ann"]) as graph:
            done = await graph.mutate(ADD, {"n": "Zoe"})
            assert done.commit == (await graph.commits())[0]
            assert [entry.name for entry in await graph.queries()] == ["everybody", "hire", "older"]
            found = await graph.acting_as("ann").invoke("everybody")
            assert isinstance(found, og.Result)
            assert len(found) == 3
            again = pickle.loads(pickle.dumps(graph))
            assert repr(again) == f"AsyncRemoteGraph({graph.uri!r})"
            await again.close()

    asyncio.run(work())
