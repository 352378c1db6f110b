"""Addresses of the resources of a cluster: ``graph.<id>``, ``schema.<id>``, ``query.<graph>.<name>``, ..."""

from __future__ import annotations

import re
from typing import Final

RESOURCE_ID: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
CLUSTER: Final = "cluster"
# The order in which resources depend on each other, for output.
KINDS: Final = ("provider", "graph", "schema", "query", "policy")


def graph_address(graph: str) -> str:
    """Return the address of a graph."""
    return f"graph.{graph}"


def schema_address(graph: str) -> str:
    """Return the address of the schema of a graph."""
    return f"schema.{graph}"


def query_address(graph: str, name: str) -> str:
    """Return the address of a stored query."""
    return f"query.{graph}.{name}"


def policy_address(name: str) -> str:
    """Return the address of a policy bundle."""
    return f"policy.{name}"


def provider_address(name: str) -> str:
    """Return the address of an embedding provider."""
    return f"provider.embedding.{name}"


def kind_of(address: str) -> str:
    """Return the kind of a resource.

    >>> kind_of("query.team.find"), kind_of("provider.embedding.default")
    ('query', 'provider')
    """
    return address.partition(".")[0]


def graph_of(address: str) -> str | None:
    """Return the graph that a graph, schema or query belongs to; None for any other resource.

    >>> graph_of("query.team.find"), graph_of("policy.base")
    ('team', None)
    """
    kind, _, rest = address.partition(".")
    return rest.partition(".")[0] if kind in ("graph", "schema", "query") else None


def name_of(address: str) -> str:
    """Return the last part of an address.

    >>> name_of("query.team.find")
    'find'
    """
    return address.rpartition(".")[2]


def sort_key(address: str) -> tuple[int, str]:
    """Return the key that sorts addresses by kind, then by name."""
    kind = kind_of(address)
    return (KINDS.index(kind) if kind in KINDS else len(KINDS), address)
