"""Two graphs of one schema, one at hand and one over HTTP: what is done to both must be the same."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import omnigraph as og
from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.api.results.loads import LoadReceipt
from omnigraph.client.graph import RemoteGraph
from omnigraph.errors import ConstraintViolation, OmnigraphError, StorageError
from omnigraph.server.hosted_graphs import open_graphs
from tests.server.running import TOKENS, Running, bundle, everything
from tests.support.waiting import HANG

SCHEMA = """\
node Person {
  name: String @key  age: I32?  born: Date?  seen: DateTime?  tags: [String]?  photo: Blob?  v: Vector(3)?
}
node City { name: String @key  size: F64? }
edge Knows: Person -> Person { since: Date? }
edge Lives: Person -> City
"""


@dataclass(frozen=True)
class Twins:
    """The graph over HTTP, and one like it that is opened here."""

    remote: RemoteGraph
    local: og.Graph

    def load(self, give: Callable[[], Any], **options: Any) -> LoadReceipt:
        """Load into both; the receipt, which is that of both, and afterwards both hold the same."""
        ours = self.local.load(give(), engine="local", **options)
        theirs = self.remote.load(give(), **options)
        assert comparable(theirs) == comparable(ours)
        branch = options.get("branch", "main")
        assert (theirs.commit is None) == (ours.commit is None)
        if theirs.commit is not None:
            assert theirs.commit.message == options.get("message")
            assert records(self.remote, branch) == records(self.local, branch)
        return theirs

    def refuse(self, give: Callable[[], Any], **options: Any) -> OmnigraphError:
        """Have both refuse a load; the error, which is that of both, and afterwards both hold what they did."""
        before = records(self.remote)
        ours = refusal_of(lambda: self.local.load(give(), **{"engine": "local", **options}))
        theirs = refusal_of(lambda: self.remote.load(give(), **options))
        assert told(theirs) == told(ours)
        assert records(self.remote) == before
        return theirs


def make_twins(server: Running, schema: str = SCHEMA) -> Twins:
    """Two new graphs without records."""
    id_, uri = uuid4().hex, f"memory://twins-{uuid4().hex}"
    og.init(uri, schema).close()
    source = GraphSource(id_, uri, None, bundle(everything("ann")))
    graphs = server.hosted.graphs
    assert isinstance(graphs, dict)
    graphs[id_] = open_graphs(Hosting((source,)), server.hosted.tokens).graphs[id_]
    remote = og.connect(server.url, id_, token=TOKENS["ann"], timeout=HANG)
    return Twins(remote, og.init(f"memory://twins-{uuid4().hex}", schema))


def records(graph: og.Graph, branch: str = "main") -> list[Any]:
    """Everything in a graph, apart from ids that are drawn."""
    text = io.StringIO()
    graph.export(text, branch=branch)
    found = [json.loads(line) for line in text.getvalue().splitlines()]
    for record in found:
        if "edge" in record:
            record["data"].pop("id", None)
    return sorted(found, key=json.dumps)


def comparable(receipt: LoadReceipt) -> LoadReceipt:
    """A receipt without what differs between any two loads."""
    return replace(receipt, commit=None, seconds=dict.fromkeys(receipt.seconds, 0.0))


def refusal_of(call: Callable[[], object]) -> OmnigraphError:
    """What a call raises."""
    try:
        call()
    except OmnigraphError as error:
        return error
    raise AssertionError("nothing was refused")


def told(error: OmnigraphError) -> tuple[Any, ...]:
    """Everything that an error says, as it would be printed."""
    more: Any = None
    if isinstance(error, ConstraintViolation):
        more = error.violations
    if isinstance(error, StorageError):
        more = error.transient
    return type(error), error.message, json.loads(json.dumps(error.details, default=str)), error.hint, more
