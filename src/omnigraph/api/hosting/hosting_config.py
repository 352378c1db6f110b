"""Read the configuration of a server: a site file, or a folder of graphs."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.api.access import read_policy
from omnigraph.api.hosting.graph_sources import GraphSource, Hosting, check_graph_id
from omnigraph.api.hosting.stored_queries import QUERY_SUFFIX, QuerySources
from omnigraph.errors import InvalidInput, NotFound, OmnigraphError
from omnigraph.rules.external_blobs import ExternalBlobPolicy, read_policy_member
from omnigraph.store.location import Location

if TYPE_CHECKING:
    from omnigraph.policy.bundle import PolicyBundle
    from omnigraph.sources.mapping.document import Document, KeyPath

GRAPH_SUFFIX = ".omni"


def read_hosting(path: str | Path, options: Mapping[str, str] | None = None) -> Hosting:
    """Read a configuration file, or list the ``*.omni`` graphs of a local folder.

    A site file is YAML, on disk or in an object store: ``graphs: {id: {uri, schema?, queries?, policy?,
    external_blobs?}}``, and ``policy?`` for the server. Paths are relative to the file.

    Raises `InvalidInput` for any other member and for an invalid policy of the server. An error of a single graph,
    such as an invalid policy, is the `error` of its `GraphSource`.
    """
    folder = _local_path(path)
    if folder is not None and folder.is_dir():
        return Hosting(tuple(_folder_graph(item) for item in sorted(folder.glob(f"*{GRAPH_SUFFIX}"))))
    document, base = _read_document(path, options or {})
    return _ConfigReader(document, base, options).read_site()


def _folder_graph(path: Path) -> GraphSource:
    id_ = path.name.removesuffix(GRAPH_SUFFIX)
    try:
        return GraphSource(check_graph_id(id_), str(path))
    except InvalidInput as error:
        return GraphSource(id_ or path.name, str(path), error=error)


def _read_document(path: str | Path, options: Mapping[str, str]) -> tuple[Document, str]:
    from omnigraph.sources.mapping.document import read_document

    if _local_path(path) is not None:
        return read_document(path, options)
    bucket, key = _split_address(str(path))
    # Raises for an invalid address, without the part that may hold a secret.
    Location.parse(bucket)
    missing = NotFound(
        f"there is no file at {path}",
        hint="graphs in an object store are hosted with a site file, such as s3://bucket/site.yaml",
    )
    if not key or key.endswith("/"):
        raise missing
    try:
        return read_document(path, options)
    except NotFound as error:
        raise missing from error


@dataclass(frozen=True)
class _ConfigReader:
    """A configuration document, the folder that its paths are relative to, and the storage options."""

    document: Document
    base: str
    options: Mapping[str, str] | None

    # --- site file ---------------------------------------------------------------------------------------

    def read_site(self) -> Hosting:
        root = self._members((), self.document.value, ("graphs", "policy"))
        graphs = self.document.object(("graphs",), root.get("graphs"))
        sources = tuple(self._site_graph(id_, graphs[id_]) for id_ in graphs)
        policy = self._path(("policy",), root)
        server = None if policy is None else self._server_policy(("policy",), policy)
        return Hosting(sources, server, str(self.base))

    def _site_graph(self, id_: str, value: Any) -> GraphSource:
        keys = ("graphs", id_)
        self.document.located(keys, lambda: check_graph_id(id_))
        members = self._members(keys, value, ("uri", "schema", "queries", "policy", "external_blobs"))
        uri, schema, policy = (self._path((*keys, name), members) for name in ("uri", "schema", "policy"))
        if uri is None:
            raise self.document.error(keys, "`uri` is required")
        source = GraphSource(
            id_,
            str(uri),
            self._queries(keys, members),
            schema=schema,
            external_blobs=self._external_blobs(keys, members),
        )
        return source if policy is None else self._with_policy(source, policy)

    # --- members -----------------------------------------------------------------------------------------

    def _server_policy(self, keys: KeyPath, file: str | Path) -> PolicyBundle:
        bundle: PolicyBundle = self.document.located(
            keys, lambda: read_policy(file, self.options, binding="cluster")
        )
        return bundle

    def _with_policy(self, source: GraphSource, file: str | Path) -> GraphSource:
        """Return a graph with its policy, or with the error of reading it."""
        try:
            return replace(source, policy=read_policy(file, self.options, binding="graph"))
        except OmnigraphError as error:
            from omnigraph.policy.bundle import PolicyBundle

            # A graph with an invalid policy must not be open to everyone. The empty bundle allows nothing.
            return replace(source, policy=PolicyBundle(), error=error)

    def _external_blobs(self, keys: KeyPath, members: Mapping[str, Any]) -> ExternalBlobPolicy:
        policy: ExternalBlobPolicy = self.document.located(
            (*keys, "external_blobs"), lambda: read_policy_member(members.get("external_blobs"))
        )
        return policy

    def _queries(self, keys: KeyPath, members: Mapping[str, Any]) -> QuerySources | None:
        """Return the stored queries: a folder or a file, a list of files, or a file for each named query."""
        keys = (*keys, "queries")
        value = members.get("queries")
        if isinstance(value, list):
            items = {str(number): item for number, item in enumerate(value)}
            paths = (self._path((*keys, number), items) for number in items)
            return QuerySources(tuple(path for path in paths if path is not None))
        if not isinstance(value, Mapping):
            path = self._path(keys, members)
            return None if path is None else QuerySources((path,))
        files: dict[str, str | Path] = {}
        for name in self.document.object(keys, value):
            inner = self._members((*keys, name), value[name], ("file",))
            file = self._path((*keys, name, "file"), inner)
            if file is None or not str(file).endswith(QUERY_SUFFIX):
                raise self.document.error(
                    (*keys, name), f"`file` must name the {QUERY_SUFFIX} file of the query"
                )
            files[name] = file
        return QuerySources(tuple(dict.fromkeys(files.values())), files)

    def _path(self, keys: KeyPath, members: Mapping[str, Any]) -> str | Path | None:
        """Return a path of the document: an address as it is, anything else relative to the document."""
        value = members.get(keys[-1])
        if value is None:
            return None
        name = self.document.text(keys, value)
        if not name.strip():
            raise self.document.error(keys, "expected a path, got a blank string")
        if _is_address(name):
            return name
        if not _is_address(self.base):
            if name.startswith("~/") or name == "~":
                raise self.document.error(keys, "`~` is not expanded", "write the full path")
            return Path(self.base) / name
        bucket, folder = _split_address(self.base)
        inner = posixpath.normpath(posixpath.join(folder, name))
        if inner.startswith(("/", "../")) or inner == "..":
            raise self.document.error(
                keys, f"`{name}` is not a path below {bucket}", "or write a full address"
            )
        return bucket if inner == "." else f"{bucket}/{inner}"

    def _members(self, keys: KeyPath, value: Any, known: tuple[str, ...]) -> Mapping[str, Any]:
        """Return an object of the document. Raise `InvalidInput` if it has a member that is not known."""
        members = self.document.object(keys, value)
        for name in members:
            if name not in known:
                hint = f"known members: {', '.join(known)}"
                raise self.document.error((*keys, name), f"unknown member '{name}'", hint)
        return members


def _local_path(path: str | Path) -> Path | None:
    """Return the path of a local file, or None for an address in an object store."""
    if not _is_address(path):
        return Path(path)
    is_file = str(path).lower().startswith("file://")
    return Path(Location.parse(str(path)).path) if is_file else None


def _is_address(path: str | Path) -> bool:
    return isinstance(path, str) and "://" in path


def _split_address(address: str) -> tuple[str, str]:
    """Split an address into its bucket or memory store, and the key in it."""
    scheme, _, rest = address.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key
