"""Ways to a graph. Storage is imported when one is taken, so that `import omnigraph` stays light."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.api.access import Address, Policy, gate_of
from omnigraph.api.graph import Graph

if TYPE_CHECKING:
    from omnigraph.policy.gate import Access, Gate
    from omnigraph.read.reader import Reader
    from omnigraph.search.embedding import Embedder


def init(
    uri: Address,
    schema: str | Path,
    *,
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    durability: Literal["full", "os"] = "full",
    cache_bytes: int | None = None,
    embedder: Embedder | None = None,
    policy: Policy | None = None,
    graph_id: str | None = None,
) -> Graph:
    """Make a new graph at a path, ``file://``, ``s3://`` or ``memory://`` address.

    `schema` is schema text, or the path of a ``.pg`` file. Of several callers one succeeds; the others get
    `Conflict`. A call that dies on the way leaves nothing that can be opened, and the next one completes it.
    Reads keep at most `cache_bytes` in memory (a quarter of the machine's by default); `embedder` turns texts
    that a query ranks by into vectors.

    `policy` says who may do what with this handle: a bundle, what its file would hold, or the path of that file of
    YAML or JSON. It knows the graph as `graph_id`, by default the last part of the address without ``.omni``.
    What it does not allow is `PermissionDenied`, and without an actor that is everything.

    >>> import omnigraph as og
    >>> og.init("memory://docs-init", schema="node City { name: String @key }").branches.list()
    ['main']
    """
    from omnigraph.api.files import read_schema
    from omnigraph.catalog.catalog import accept
    from omnigraph.graph.repository import Repository
    from omnigraph.lang.pg.schema_compiler import load_schema
    from omnigraph.read.reader import Reader

    text, name = read_schema(schema)
    catalog = accept(load_schema(text, name), text)
    gate = gate_of(policy, graph_id, uri, storage_options)
    repository = Repository.init(uri, catalog, options=storage_options, durability=durability, actor=actor)
    opened = _opened(
        repository.location.uri, "rw", actor, storage_options, durability, cache_bytes, embedder, gate
    )
    return Graph(repository, Reader(cache_bytes, embedder), actor, opened, gate)


def open(  # noqa: A001 - the name is part of the API
    uri: Address,
    mode: Literal["rw", "r"] = "rw",
    *,
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    durability: Literal["full", "os"] = "full",
    cache_bytes: int | None = None,
    embedder: Embedder | None = None,
    policy: Policy | None = None,
    graph_id: str | None = None,
) -> Graph:
    """Open a graph. ``rw`` heals what dead writers left; ``r`` never writes, not even that.

    The other arguments are those of `init`.

    >>> import omnigraph as og
    >>> g = og.init("memory://docs-open", schema="node City { name: String @key }")
    >>> og.open("memory://docs-open", mode="r").commits()[0].operation
    'init'
    """
    from omnigraph.graph.repository import Repository
    from omnigraph.read.reader import Reader

    gate = gate_of(policy, graph_id, uri, storage_options)
    repository = Repository.open(uri, mode=mode, options=storage_options, durability=durability)
    opened = _opened(
        repository.location.uri, mode, actor, storage_options, durability, cache_bytes, embedder, gate
    )
    return Graph(repository, Reader(cache_bytes, embedder), actor, opened, gate)


def embedder_of(environment: Mapping[str, str]) -> Embedder:
    """The embedding provider that an environment names, such as ``os.environ``; it is asked when a text comes.

    ``OMNIGRAPH_EMBED_PROVIDER`` is ``openai-compatible``, ``openai``, ``gemini`` or ``mock``.

    >>> import omnigraph as og
    >>> og.embedder_of({"OMNIGRAPH_EMBED_PROVIDER": "mock"}).embed(["hello"], 3, None).round(3)
    array([[-0.423,  0.689,  0.589]], dtype=float32)
    """
    from omnigraph.search.embedding_providers import EnvironmentEmbedder

    return EnvironmentEmbedder.of(environment)


def open_with(
    reader: Reader,
    uri: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    gate: Gate | None = None,
) -> Graph:
    """Open a graph whose reads share what a reader has, such as memory with other graphs, and that obeys a gate."""
    from omnigraph.graph.repository import Repository

    repository = Repository.open(uri, options=storage_options)
    opened = _opened(
        repository.location.uri, "rw", None, storage_options, "full", None, reader.embedder, gate
    )
    return Graph(repository, reader, None, opened, gate)


def authorized_view(graph: Graph, actor: str | None, granted: frozenset[Access]) -> Graph:
    """Return the handle of `Graph.acting_as` for an actor whose accesses in `granted` are authorized already.

    The handle does not evaluate the policy for them again. This is for a server, which authorizes what a request
    names before it reads the body.
    """
    return graph._authorized_as(actor, granted)  # noqa: SLF001 - not a member of the public API


def reopen(opened: Mapping[str, Any]) -> Graph:
    """The handle that another one was pickled to."""
    return open(**opened)


def _opened(
    uri: str,
    mode: str,
    actor: str | None,
    options: Mapping[str, str] | None,
    durability: str,
    cache_bytes: int | None,
    embedder: Embedder | None,
    gate: Gate | None,
) -> dict[str, Any]:
    return {
        "uri": uri,
        "mode": mode,
        "actor": actor,
        "storage_options": None if options is None else dict(options),
        "durability": durability,
        "cache_bytes": cache_bytes,
        "embedder": embedder,
        "policy": None if gate is None else gate.bundle,
        "graph_id": None if gate is None else gate.graph_id,
    }
