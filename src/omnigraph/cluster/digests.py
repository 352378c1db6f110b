"""Digests of the resources of a cluster. They are part of the stored format and never change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from omnigraph.rules.external_blobs import ExternalBlobPolicy


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal: the digest of a schema, query or policy file."""
    return sha256(data).hexdigest()


def state_cas(data: bytes) -> str:
    """Return the identity of a state file, which a compare-and-swap expects."""
    return f"sha256:{digest_of(data)}"


def provider_digest(profile: Mapping[str, str]) -> str:
    """Return the digest of an embedding provider from its profile, whose key is the name of a variable."""
    return digest_of(b"embedding-provider\0" + compact_json(profile))


def graph_digest(
    graph: str,
    schema: str,
    queries: Mapping[str, str],
    provider: tuple[str, str] | None = None,
    external_blobs: ExternalBlobPolicy | None = None,
) -> str:
    """Return the composite digest of a graph from the digests of its parts.

    `queries` has the digest of each query by name, `provider` the address and the digest of the provider.
    """
    parts = [_field("graph"), _field(graph), _field("schema"), _field(schema)]
    for name, digest in sorted(queries.items()):
        parts += [_field("query"), _field(name), _field(digest)]
    if provider is not None:
        parts += [_field("embedding_provider"), *map(_field, provider)]
    if external_blobs is not None:
        parts.append(external_blobs.digest_input())
    return digest_of(b"".join(parts))


def config_digest(document: Any, resources: Mapping[str, str]) -> str:
    """Return the digest of a configuration from its parsed document and the digests of its resources.

    Comments, formatting and the order of keys in the YAML do not count.
    """
    parts = [_field("cluster-config"), compact_json(document), b"\0"]
    for address, digest in sorted(resources.items()):
        parts += [_field(address), _field(digest)]
    return digest_of(b"".join(parts))


def compact_json(document: Any) -> bytes:
    """Return JSON without spaces, with sorted keys. Dates of YAML become text."""
    return json.dumps(
        document, separators=(",", ":"), sort_keys=True, ensure_ascii=False, default=str
    ).encode("utf-8", "surrogatepass")


def _field(text: str) -> bytes:
    return text.encode("utf-8") + b"\0"
