"""Create and open local graphs. Storage is imported on the first call, so that `import omnigraph` is fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from omnigraph.api.access import Address, ExternalBlobs, Policy, gate_of
from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.api.local.open_options import OpenOptions

if TYPE_CHECKING:
    from omnigraph.graph.repository import Repository
    from omnigraph.maintain.upkeep_mode import UpkeepMode
    from omnigraph.policy.gate import Gate
    from omnigraph.read.reader import Reader
    from omnigraph.rules.external_blobs import ExternalBlobPolicy
    from omnigraph.search.embeddings.embedder import Embedder
    from omnigraph.search.embeddings.given_embedders import EmbedderInput

# A served graph looks for commits of other processes this often.
_WATCH_SECONDS = 60.0


def init(
    uri: Address,
    schema: str | Path,
    *,
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    durability: Literal["full", "os"] = "full",
    cache_bytes: int | None = None,
    embedder: EmbedderInput | None = None,
    policy: Policy | None = None,
    graph_id: str | None = None,
    external_blobs: ExternalBlobs | None = None,
    verify_reads: bool = False,
    upkeep: UpkeepMode | None = None,
) -> LocalGraph:
    """Create a graph at a path, or at a ``file://``, ``s3://`` or ``memory://`` address.

    `schema` is schema text or the path of a ``.pg`` file. If several callers create the same graph, one succeeds
    and the others get `Conflict`. An interrupted call leaves nothing that can be opened; the next call completes
    it.

    `cache_bytes` limits the memory of cached reads; the default is a quarter of the machine's memory.

    `embedder` computes the vectors of texts: of the text that a query ranks by, and of the texts in rows whose
    property is declared with ``@embed(…, provider=…)``. It is the result of `embedder_of`, a function that returns
    a vector for each text of a list, an object with the method ``embed(texts, dim, model)``, or a mapping from
    provider names in the schema to those.

    `policy` restricts what the actor may do with this handle. It is a bundle, the content of a policy file, or the
    path of a YAML or JSON policy file. Rules refer to the graph as `graph_id`, by default the last part of the
    address without ``.omni``. An action that the policy does not allow raises `PermissionDenied`. Without an actor
    no action is allowed.

    `external_blobs` lists the bases below which a Blob value may be the URI of an external object, such as
    ``["s3://assets/photos/"]``. By default every URI is refused, and a Blob value is bytes or ``base64:`` text. An
    object must exist when its URI is written, else `ExternalBlobError` is raised.

    With `verify_reads` every file is compared with its recorded digest when this handle first opens it, before its
    rows are used. A damaged file raises `StorageError`. Each file is read completely once. Otherwise only the sizes
    of data files on a local disk are compared.

    A handle that writes performs upkeep in the background: it extends indexes, and removes the data of old commits
    according to the retention policy in `Graph.settings`. ``upkeep="off"`` turns this off for the handle. The
    default is the variable ``OMNIGRAPH_UPKEEP``, else ``"auto"``.

    >>> import omnigraph as og
    >>> og.init("memory://docs-init", schema="node City { name: String @key }").branches.list()
    ['main']
    """
    from omnigraph.api.files.local_files import read_schema
    from omnigraph.catalog.catalog import accept
    from omnigraph.graph.repository import Repository
    from omnigraph.lang.pg.schema_compiler import load_schema

    storage_options = _with_verification(storage_options, verify_reads)
    options = OpenOptions(
        actor=actor,
        storage_options=storage_options,
        durability=durability,
        cache_bytes=cache_bytes,
        embedder=_embedder(embedder),
        policy=policy,
        graph_id=graph_id,
        external_blobs=_external_blobs(external_blobs),
        upkeep=upkeep,
    )
    text, name = read_schema(schema)
    catalog = accept(load_schema(text, name), text)
    gate = gate_of(policy, graph_id, uri, storage_options)
    repository = Repository.init(uri, catalog, options=storage_options, durability=durability, actor=actor)
    return _graph(repository, options, gate)


def open(  # noqa: A001 - the name is part of the API
    uri: Address,
    mode: Literal["rw", "r"] = "rw",
    *,
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    durability: Literal["full", "os"] = "full",
    cache_bytes: int | None = None,
    embedder: EmbedderInput | None = None,
    policy: Policy | None = None,
    graph_id: str | None = None,
    external_blobs: ExternalBlobs | None = None,
    verify_reads: bool = False,
    upkeep: UpkeepMode | None = None,
) -> LocalGraph:
    """Open a graph. Mode ``rw`` recovers interrupted bulk writes; mode ``r`` never writes.

    The other arguments are those of `init`.

    >>> import omnigraph as og
    >>> g = og.init("memory://docs-open", schema="node City { name: String @key }")
    >>> og.open("memory://docs-open", mode="r").commits()[0].operation
    'init'
    """
    options = OpenOptions(
        mode,
        actor,
        _with_verification(storage_options, verify_reads),
        durability,
        cache_bytes,
        _embedder(embedder),
        policy,
        graph_id,
        _external_blobs(external_blobs),
        upkeep,
    )
    return reopen(uri, options)


def reopen(uri: Address, options: OpenOptions) -> LocalGraph:
    """Open a graph with the options of another handle. Pickled handles call it."""
    from omnigraph.graph.repository import Repository

    gate = gate_of(options.policy, options.graph_id, uri, options.storage_options)
    repository = Repository.open(
        uri, mode=options.mode, options=options.storage_options, durability=options.durability
    )
    return _graph(repository, options, gate)


def open_with(
    reader: Reader,
    uri: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    gate: Gate | None = None,
    external_blobs: ExternalBlobs | None = None,
    upkeep: UpkeepMode | None = None,
) -> LocalGraph:
    """Open a graph that reads through `reader`, which may share its memory with other graphs, and obeys `gate`.

    The handle lives long, so it also performs upkeep after commits of other processes. ``upkeep="off"`` turns that
    off.

    `external_blobs` is described in `init`.
    """
    from omnigraph.graph.repository import Repository
    from omnigraph.maintain.upkeep import attach_upkeep

    repository = Repository.open(uri, options=storage_options)
    attach_upkeep(repository, upkeep, watch=_WATCH_SECONDS)
    options = OpenOptions(
        storage_options=storage_options,
        embedder=reader.embedder,
        external_blobs=_external_blobs(external_blobs),
    )
    return LocalGraph(repository, reader, _with_gate(options, gate), gate)


def _with_verification(options: Mapping[str, str] | None, verify_reads: bool) -> Mapping[str, str] | None:
    """Return storage options, which also reach tasks and other processes, with the option `verify_reads`."""
    return {**(options or {}), "verify_reads": "true"} if verify_reads else options


def embedder_of(environment: Mapping[str, str]) -> Embedder:
    """Return the embedding provider that environment variables name. `environment` is such as ``os.environ``.

    ``OMNIGRAPH_EMBED_PROVIDER`` is ``openai-compatible``, ``openai``, ``gemini`` or ``mock``. The provider is
    called when the first text is embedded.

    >>> import omnigraph as og
    >>> og.embedder_of({"OMNIGRAPH_EMBED_PROVIDER": "mock"}).embed(["hello"], 3, None).round(3)
    array([[-0.423,  0.689,  0.589]], dtype=float32)
    """
    from omnigraph.search.embeddings.providers import EnvironmentEmbedder

    return EnvironmentEmbedder.of(environment)


def local_embedder(path: str | Path) -> Embedder:
    """Return the embedding model in a local folder. Nothing is downloaded.

    A folder with ``model.onnx`` and ``tokenizer.json`` needs the extra ``onnx``, the folder of a
    sentence-transformers model that library. Raises `NotFound` if the folder has no model.

    >>> import omnigraph as og
    >>> og.local_embedder("no/such/folder")
    Traceback (most recent call last):
    omnigraph.errors.NotFound: no embedding model in the folder no/such/folder
    hint: it needs model.onnx and tokenizer.json, or the files of a sentence-transformers model
    """
    from omnigraph.search.embeddings.local_models import open_local_model

    return open_local_model(Path(path))


def _embedder(given: EmbedderInput | None) -> Embedder | None:
    if given is None:
        return None
    from omnigraph.search.embeddings.given_embedders import as_embedder

    return as_embedder(given)


def _external_blobs(given: ExternalBlobs | None) -> ExternalBlobPolicy | None:
    """Return the policy of the bases that a caller gave. Raises `InvalidInput`."""
    if given is None:
        return None
    from omnigraph.rules.external_blobs import ExternalBlobPolicy

    return ExternalBlobPolicy.of(given)


def _graph(repository: Repository, options: OpenOptions, gate: Gate | None) -> LocalGraph:
    from omnigraph.maintain.upkeep import attach_upkeep
    from omnigraph.read.reader import Reader

    attach_upkeep(repository, options.upkeep)
    reader = Reader(options.cache_bytes, options.embedder)
    return LocalGraph(repository, reader, _with_gate(options, gate), gate)


def _with_gate(options: OpenOptions, gate: Gate | None) -> OpenOptions:
    """Return the options with copies of mutable arguments, and with the policy as the gate read it."""
    storage = options.storage_options
    return replace(
        options,
        storage_options=None if storage is None else dict(storage),
        policy=None if gate is None else gate.bundle,
        graph_id=None if gate is None else gate.graph_id,
    )
