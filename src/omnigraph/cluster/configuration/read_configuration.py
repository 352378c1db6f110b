"""Read and validate `cluster.yaml` and the files that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omnigraph.cluster.addresses import (
    CLUSTER,
    KINDS,
    graph_address,
    provider_address,
)
from omnigraph.cluster.configuration.declared_files import (
    read_policy_file,
    read_queries,
    read_schema_file,
)
from omnigraph.cluster.configuration.members import Findings
from omnigraph.cluster.configuration.model import Configuration, DeclaredGraph, DeclaredPolicy
from omnigraph.cluster.diagnostics import ClusterFailure, Diagnostic, error, has_errors, reason
from omnigraph.errors import InvalidInput, NotFound, OmnigraphError
from omnigraph.rules.external_blobs import ExternalBlobPolicy, read_policy_member
from omnigraph.sources.mapping.document import read_document
from omnigraph.store.location import Location

if TYPE_CHECKING:
    from omnigraph.policy.bundle import Binding

CONFIG_FILE: Final = "cluster.yaml"
_MEMBERS: Final = ("version", "metadata", "storage", "state", "providers", "graphs", "policies")
_VARIABLE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}\Z")
_PROVIDER_KINDS: Final = ("openai-compatible", "openai", "gemini", "mock")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of reading a configuration. It has no `configuration` if there are errors."""

    folder: Path
    configuration: Configuration | None
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def config_file(self) -> Path:
        """The path of `cluster.yaml`."""
        return self.folder / CONFIG_FILE

    def require(self) -> Configuration:
        """Return the configuration, or raise `ClusterFailure` with all errors."""
        if self.configuration is None:
            raise ClusterFailure(*self.diagnostics)
        return self.configuration


def load_configuration(folder: str | Path) -> Loaded:
    """Read and validate the configuration of a directory. All problems are diagnostics; nothing is raised."""
    place = Path(folder)
    try:
        document = read_config_document(place)
    except ClusterFailure as failure:
        return Loaded(place, None, failure.diagnostics)
    findings = Findings()
    reader = _ConfigurationReader(place, findings)
    configuration = reader.read(document)
    listed = tuple(findings.recorded)
    return Loaded(place, None if has_errors(listed) else configuration, listed)


def read_config_document(folder: Path) -> Any:
    """Return the parsed `cluster.yaml` of a directory. Raises `ClusterFailure`."""
    if not folder.is_dir():
        raise ClusterFailure(
            error("config_dir_not_found", str(folder), f"there is no directory {folder}: pass --config DIR")
        )
    file = folder / CONFIG_FILE
    try:
        document, _ = read_document(file, {})
    except NotFound as failure:
        message = f"there is no {CONFIG_FILE} in {folder}"
        raise ClusterFailure(error("cluster_config_read_error", str(file), message)) from failure
    except InvalidInput as failure:
        code = "duplicate_yaml_key" if "duplicate_key" in failure.details else "invalid_cluster_yaml"
        path = failure.details.get("path") or str(file)
        raise ClusterFailure(error(code, path, reason(failure))) from failure
    except OmnigraphError as failure:
        raise ClusterFailure(error("cluster_config_read_error", str(file), reason(failure))) from failure
    return document.value


def read_storage_root(folder: Path, document: Any, findings: Findings) -> str:
    """Return the root that holds the ledger and the graphs; by default the configuration directory."""
    value = document.get("storage") if isinstance(document, Mapping) else None
    if value is None:
        return str(folder.resolve())
    if not isinstance(value, str) or not value.strip():
        findings.fail("invalid_storage_root", "storage", "expected a path or a file://, s3:// address")
        return str(folder.resolve())
    if value.startswith("~"):
        findings.fail("invalid_storage_root", "storage", "`~` is not expanded: write the full path")
        return value
    try:
        return Location.parse(value if "://" in value else folder / value).uri
    except InvalidInput as failure:
        findings.fail("invalid_storage_root", "storage", reason(failure))
        return value


@dataclass(frozen=True)
class _ConfigurationReader:
    folder: Path
    findings: Findings

    def read(self, document: Any) -> Configuration | None:
        version = document.get("version") if isinstance(document, Mapping) else None
        if type(version) is not int or version != 1:
            shown = "it is missing" if version is None else f"got {version!r}"
            self.findings.fail(
                "unsupported_cluster_config_version", "version", f"the version must be 1: {shown}"
            )
            return None
        root = self.findings.mapping("", document, _MEMBERS)
        self._read_metadata(root.get("metadata"))
        providers = self._read_providers(root.get("providers"))
        graphs = self._read_graphs(root.get("graphs"), providers)
        return Configuration(
            self.folder,
            document,
            read_storage_root(self.folder, document, self.findings),
            self._read_state(root.get("state")),
            providers,
            graphs,
            self._read_policies(root.get("policies"), root.get("graphs")),
        )

    def _read_metadata(self, value: Any) -> None:
        members = self.findings.mapping("metadata", value, ("name",))
        name = members.get("name")
        if "name" in members and not (isinstance(name, str) and name.strip()):
            self.findings.fail("empty_metadata_name", "metadata.name", "the name must not be blank")

    def _read_state(self, value: Any) -> bool:
        members = self.findings.mapping("state", value, ("backend", "lock"))
        if members.get("backend", "cluster") != "cluster":
            self.findings.fail(
                "unsupported_state_backend",
                "state.backend",
                f"{members['backend']!r} is not supported: the only backend is `cluster`",
            )
        lock = members.get("lock", True)
        if not isinstance(lock, bool):
            self.findings.fail("invalid_cluster_yaml", "state.lock", f"expected true or false, got {lock!r}")
        return bool(lock)

    # --- providers -----------------------------------------------------------------------------------------

    def _read_providers(self, value: Any) -> dict[str, Mapping[str, str]]:
        members = self.findings.mapping("providers", value, ("embedding",))
        listed = self.findings.resources("providers.embedding", members.get("embedding"))
        return {
            provider_address(name): self._read_profile(f"providers.embedding.{name}", item)
            for name, item in listed.items()
        }

    def _read_profile(self, path: str, value: Any) -> Mapping[str, str]:
        """Return a profile as the ledger records it. Its key is the reference to an environment variable."""
        known = ("kind", "provider", "base_url", "model", "api_key")
        members = self.findings.mapping(path, value, known)
        texts = {name: self.findings.text(f"{path}.{name}", members.get(name)) for name in known}
        if texts["kind"] is not None and texts["provider"] is not None:
            self.findings.fail(
                "invalid_embedding_provider", path, "`kind` and `provider` mean the same: keep one"
            )
        kind = texts["kind"] or texts["provider"] or _PROVIDER_KINDS[0]
        if kind not in _PROVIDER_KINDS:
            self.findings.fail(
                "invalid_embedding_provider",
                f"{path}.kind",
                f"unknown kind '{kind}': expected {', '.join(_PROVIDER_KINDS)}",
            )
        key = texts["api_key"]
        if key is not None and not _VARIABLE.match(key):
            # The value may be a secret, so the message does not show it.
            self.findings.fail(
                "embedding_api_key_inline",
                f"{path}.api_key",
                "a key must not be in a file: name an environment variable as ${NAME}",
            )
            key = None
        elif key is None and kind != "mock":
            self.findings.fail(
                "embedding_api_key_required", f"{path}.api_key", f"`{kind}` needs api_key: ${{NAME}}"
            )
        found = {"kind": kind, "base_url": texts["base_url"], "model": texts["model"], "api_key": key}
        return {name: text for name, text in found.items() if text is not None}

    # --- graphs --------------------------------------------------------------------------------------------

    def _read_graphs(self, value: Any, providers: Iterable[str]) -> dict[str, DeclaredGraph]:
        known = frozenset(providers)
        found: dict[str, DeclaredGraph] = {}
        for id_, item in self.findings.resources("graphs", value).items():
            graph = self._read_graph(id_, item, known)
            if graph is not None:
                found[id_] = graph
        return found

    def _read_graph(self, id_: str, value: Any, providers: frozenset[str]) -> DeclaredGraph | None:
        path = f"graphs.{id_}"
        members = self.findings.mapping(
            path, value, ("schema", "queries", "embedding_provider", "external_blobs")
        )
        name = self.findings.text(f"{path}.schema", members.get("schema"))
        if name is None:
            if members.get("schema") is None:
                self.findings.fail("invalid_cluster_yaml", f"{path}.schema", "`schema` is required")
            return None
        external_blobs = self._read_external_blobs(path, members)
        schema, compiled = read_schema_file(self.findings, path, self.folder / name, external_blobs)
        queries = read_queries(self.findings, id_, self.folder, members.get("queries"), compiled)
        provider = self._read_provider_reference(path, members, providers)
        return None if schema is None else DeclaredGraph(id_, schema, queries, provider, external_blobs)

    def _read_external_blobs(self, path: str, members: Mapping[str, Any]) -> ExternalBlobPolicy:
        try:
            return read_policy_member(members.get("external_blobs"))
        except InvalidInput as failure:
            code = failure.details.get("code", "invalid_external_blob_policy")
            self.findings.fail(code, f"{path}.external_blobs", reason(failure))
            return ExternalBlobPolicy()

    def _read_provider_reference(
        self, path: str, members: Mapping[str, Any], providers: frozenset[str]
    ) -> str | None:
        place = f"{path}.embedding_provider"
        name = self.findings.text(place, members.get("embedding_provider"))
        if name is None:
            return None
        kind = name.partition(".")[0]
        if "." in name and kind in KINDS and not name.startswith("provider.embedding."):
            self.findings.fail(
                "wrong_kind_reference", place, f"'{name}' is a {kind}, expected an embedding provider"
            )
            return None
        address = provider_address(name.removeprefix("provider.embedding."))
        if address not in providers:
            self.findings.fail(
                "dangling_embedding_provider_reference",
                place,
                f"providers.embedding has no '{name.removeprefix('provider.embedding.')}'",
            )
            return None
        return address

    # --- policies ------------------------------------------------------------------------------------------

    def _read_policies(self, value: Any, graphs: Any) -> dict[str, DeclaredPolicy]:
        # A graph with errors of its own is still declared.
        declared = frozenset(graphs) if isinstance(graphs, Mapping) else frozenset()
        found: dict[str, DeclaredPolicy] = {}
        bound: dict[str, str] = {}
        for name, item in self.findings.resources("policies", value).items():
            path = f"policies.{name}"
            members = self.findings.mapping(path, item, ("file", "applies_to"))
            scopes = self._read_bindings(path, members, declared)
            for scope in scopes:
                if scope in bound:
                    self.findings.fail(
                        "duplicate_policy_binding",
                        f"{path}.applies_to",
                        f"'{scope}' has the policy '{bound[scope]}' already",
                    )
                bound.setdefault(scope, name)
            file_name = self.findings.text(f"{path}.file", members.get("file"))
            if file_name is None:
                if members.get("file") is None:
                    self.findings.fail("invalid_cluster_yaml", f"{path}.file", "`file` is required")
                continue
            binding: Binding | None = "cluster" if CLUSTER in scopes else "graph" if scopes else None
            file = read_policy_file(self.findings, path, self.folder / file_name, binding)
            if file is not None:
                found[name] = DeclaredPolicy(name, file, scopes)
        return found

    def _read_bindings(
        self, path: str, members: Mapping[str, Any], graphs: frozenset[Any]
    ) -> tuple[str, ...]:
        place = f"{path}.applies_to"
        listed = members.get("applies_to")
        names = [] if listed is None else self.findings.texts(place, listed)
        if not listed:
            self.findings.fail(
                "policy_missing_applies_to", place, "list the graphs that the policy applies to, or `cluster`"
            )
            return ()
        found: list[str] = []
        for name in names:
            kind, _, rest = name.partition(".")
            if name == CLUSTER:
                address = CLUSTER
            elif rest and kind != "graph":
                self.findings.fail(
                    "wrong_kind_reference", place, f"'{name}' is not a graph: write graph.<id> or `cluster`"
                )
                continue
            else:
                id_ = rest or name
                if id_ not in graphs:
                    self.findings.fail("dangling_graph_reference", place, f"there is no graph '{id_}'")
                    continue
                address = graph_address(id_)
            if address in found:
                self.findings.fail("duplicate_policy_binding", place, f"'{name}' is listed twice")
            else:
                found.append(address)
        if CLUSTER in found and len(found) > 1:
            self.findings.fail(
                "policy_mixed_binding_kinds", place, "a policy applies to graphs or to the cluster, not both"
            )
        return tuple(sorted(found))
