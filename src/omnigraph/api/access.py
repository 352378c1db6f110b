"""The access policy of a graph, as a caller passes it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.policy.bundle import Binding, PolicyBundle
    from omnigraph.policy.gate import Gate
    from omnigraph.rules.external_blobs import ExternalBlobPolicy, GivenBase
    from omnigraph.store.storage_options import StorageOptions

# A path, or a file://, s3:// or memory:// address.
Address: TypeAlias = "str | os.PathLike[str]"
# A bundle, the content of a policy file, or the path of a policy file.
Policy: TypeAlias = "PolicyBundle | Mapping[str, Any] | str | Path"

# The bases of external blobs: a list of URIs, or of objects with `base` and `scope`.
ExternalBlobs: TypeAlias = "ExternalBlobPolicy | Iterable[GivenBase]"


def gate_of(
    policy: Policy | None, graph_id: str | None, uri: Address, options: StorageOptions | None
) -> Gate | None:
    """Return the policy gate of the graph at an address, or None without a policy. The graph is not read."""
    if policy is None:
        return None
    from omnigraph.policy.gate import Gate
    from omnigraph.store.location import Location

    bundle = read_policy(policy, options or {}, binding="graph")
    return Gate(bundle, graph_name(Location.parse(uri).uri) if graph_id is None else graph_id)


def read_policy(
    policy: Policy, options: StorageOptions | None = None, *, binding: Binding | None = None
) -> PolicyBundle:
    """Return a policy as a bundle. A file is YAML or JSON, on disk or in an object store.

    Raises `InvalidInput` if the policy is invalid.

    >>> read_policy({"version": 1, "groups": {"team": ["act-ann"]}}).actors
    frozenset({'act-ann'})
    """
    from omnigraph.policy.bundle import PolicyBundle, read_bundle

    if isinstance(policy, PolicyBundle):
        return policy
    if isinstance(policy, Mapping):
        return read_bundle(policy, binding=binding)
    value: object = policy
    if not isinstance(value, str | Path) or not str(value).strip():
        shown = repr(value) if isinstance(value, str) else type(value).__name__
        raise InvalidInput(f"a policy is a bundle, the content of a policy file, or its path, not {shown}")
    from omnigraph.sources.mapping.document import read_document

    document, _ = read_document(policy, options or {})
    bundle = document.located((), lambda: read_bundle(document.value, binding=binding))
    assert isinstance(bundle, PolicyBundle)
    return bundle


def graph_name(uri: str) -> str:
    """Return the default graph id that policies use for the graph at an address.

    >>> graph_name("s3://bucket/team/knowledge.omni"), graph_name("memory://scratch")
    ('knowledge', 'scratch')
    """
    return uri.rstrip("/").rpartition("/")[2].removesuffix(".omni")
