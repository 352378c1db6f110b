"""Two equal graphs, one in storage and one on a real server, and commands that are run on both."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from uuid import uuid4

import omnigraph as og
from omnigraph.api.hosting.stored_queries import QuerySources, read_stored_queries
from omnigraph.policy.bundle import read_bundle
from omnigraph.policy.gate import Gate
from omnigraph.server.hosted_graphs import HostedGraph
from omnigraph.server.http.authentication import TokenRegistry
from tests.cli.console import Names
from tests.cli.graphs import abandon_load, heal
from tests.cli.running import Outcome, run
from tests.server.running import Running, everything

ACTOR, TOKEN = "ann", "token-of-ann"
IDENTITIES = TokenRegistry.of({ACTOR: TOKEN})
ALLOWED = everything(ACTOR)

SCHEMA = """\
node Person {
  name: String @key
  age: I32?
  born: Date?
  email: String? @unique
  @range(age, 0..150)
}

edge Knows: Person -> Person {
  since: Date?
}
"""
STORED = """\
query grown($least: I32) { match { $p: Person  $p.age >= $least } return { $p.name as name } order { name asc } }
query hire($name: String) { insert Person { name: $name } }
"""

# Writing commands, which take --as; on a server the token identifies the actor. Without sync, to be faster.
_WRITES = re.compile(
    r"(mutate|change|load|ingest|branch (create|delete|merge)|tag (create|delete)|revert|schema apply)\b"
)
_WRITING = ("--as", ACTOR, "--durability", "os")
# The target in the announcement line, and the times of the stages of a load.
_TARGET = re.compile(r"\((direct, local|served)\)")
_SECONDS = re.compile(r"\d+\.\d+ s\b|(?<=: )\d+\.\d+(?=,?$)", flags=re.MULTILINE)


@dataclass(frozen=True)
class Origin:
    """The graph that is copied, and the ids of its commits by name."""

    path: Path
    commits: dict[str, str]

    def named(self, args: list[str]) -> list[str]:
        """Replace ``{load}`` in words by the id of the commit `load`."""
        for name, id_ in self.commits.items():
            args = [arg.replace(f"{{{name}}}", id_) for arg in args]
        return args


def make_origin(folder: Path) -> Origin:
    """Create three people on `main`, a branch `dev` that conflicts in one, and `plain` without conflicts."""
    path = folder / "origin.omni"
    commits: dict[str, str] = {}

    def keep(name: str, commit: og.Commit | None) -> None:
        assert commit is not None
        commits[name] = commit.id

    with og.init(str(path), SCHEMA, durability="os", actor="zoe") as graph:
        commits["init"] = graph.snapshot().commit_id
        rows = [{"name": name, "age": 30 + place} for place, name in enumerate(("Ann", "Bøb", "Cid"))]
        ends = [{"from": "Ann", "to": "Bøb", "id": "e1"}, {"from": "Bøb", "to": "Cid", "id": "e2"}]
        keep("load", graph.load({"Person": rows, "Knows": ends}, message="the first").commit)
        for branch in ("dev", "plain"):
            graph.branches.create(branch)
        keep("main", graph.mutate('query q() { update Person set { age: 40 } where name = "Ann" }').commit)
        keep(
            "dev",
            graph.mutate(
                'query q() { update Person set { age: 50 } where name = "Ann" }', branch="dev"
            ).commit,
        )
        nobody = graph.acting_as(None)
        keep("plain", nobody.mutate('query q() { insert Person { name: "Dan" } }', branch="plain").commit)
    # Both copies have a record of an interrupted write.
    abandon_load(str(path), "Eve", complete=False, actor="bob")
    heal(str(path))
    return Origin(path, commits)


@dataclass(frozen=True)
class Pair:
    """Two copies of one graph: at `path`, and as `graph` of the server at `url`."""

    path: Path
    url: str
    graph: str
    served: og.Graph

    def both(self, *args: str, stdin: str = "") -> Outcome:
        """Run a command on both copies and compare the outcomes, except for ids, times and addresses."""
        direct, served = self.direct(*args, stdin=stdin), self.remote(*args, stdin=stdin)
        theirs, ours = self._settled(served), self._settled(direct)
        assert theirs == ours, f"served: {theirs}\ndirect: {ours}"
        return served

    def direct(self, *args: str, stdin: str = "") -> Outcome:
        """Run a command on the storage."""
        writing = _WRITING if _WRITES.match(" ".join(args)) else ()
        return run(*args, "--store", str(self.path), *writing, stdin=stdin)

    def remote(self, *args: str, stdin: str = "", token: str = TOKEN) -> Outcome:
        """Run a command through the server."""
        env: dict[str, str | None] = {"OMNIGRAPH_BEARER_TOKEN": token}
        return run(*args, "--server", self.url, "--graph", self.graph, stdin=stdin, env=env)

    def check_equal(self) -> None:
        """Assert that both graphs have equal contents on every branch."""
        with og.open(str(self.path), mode="r") as direct:
            branches = direct.branches.list()
            assert self.served.branches.list() == branches
            for branch in branches:
                assert _records(self.served, branch) == _records(direct, branch)
                ours, theirs = direct.commits(branch), self.served.commits(branch)
                assert [(item.operation, item.actor, item.message) for item in theirs] == [
                    (item.operation, item.actor, item.message) for item in ours
                ]

    def _settled(self, outcome: Outcome) -> tuple[int, str, str]:
        names = Names()
        texts = []
        for text in (outcome.stdout, outcome.stderr):
            for place in (f"{self.url}/graphs/{self.graph}", str(self.path)):
                text = text.replace(place, "<graph>")
            texts.append(_SECONDS.sub("<seconds>", _TARGET.sub("(<how>)", names.settle(text))))
        return outcome.code, texts[0], texts[1]


@contextmanager
def hosted_pair(origin: Origin, server: Running, folder: Path, queries: Path) -> Iterator[Pair]:
    """Create two copies of a graph, one of them served while the context is active."""
    here, there, id_ = folder / "direct.omni", folder / "served.omni", uuid4().hex
    for path in (here, there):
        shutil.copytree(origin.path, path)
    graph = og.open(str(there), durability="os", policy=ALLOWED, graph_id=id_)
    schema = graph.acting_as(ACTOR).snapshot().catalog.schema
    graphs = server.hosted.graphs
    assert isinstance(graphs, dict)
    gate = Gate(read_bundle(ALLOWED), id_)
    graphs[id_] = HostedGraph(id_, graph, gate, read_stored_queries(QuerySources((queries,)), schema))
    try:
        yield Pair(here, server.url, id_, graph.acting_as(ACTOR))
    finally:
        del graphs[id_]
        graph.close()


def _records(graph: og.Graph, branch: str) -> list[str]:
    text = StringIO()
    graph.export(text, branch=branch)
    # Edges that were written without an id have different ids in the two copies.
    return sorted(
        re.sub(r'"id":"[0-9A-HJKMNP-TV-Z]{26}"', '"id":"<id>"', line) for line in text.getvalue().splitlines()
    )
