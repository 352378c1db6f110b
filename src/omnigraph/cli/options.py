"""The global options, and which of them apply to which command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from omnigraph.errors import InvalidInput

Capability: TypeAlias = Literal["any", "served", "direct", "control", "local"]

DIRECT = frozenset(
    {
        "init",
        "optimize",
        "repair",
        "cleanup",
        "lint",
        "schema plan",
        "backup",
        "restore",
        "clone",
        "du",
        "embed status",
        "embed refresh",
    }
)
# The commands on storage that also accept `--cluster` with `--graph`.
CLUSTERED = frozenset({"optimize", "repair", "verify", "cleanup", "lint"})
WITH_ACTOR = frozenset(
    {
        "init",
        "load",
        "ingest",
        "mutate",
        "change",
        "mcp",
        "optimize",
        "cluster apply",
        "cluster approve",
        "cluster import",
        "cluster refresh",
        "cluster rollback",
        "branch create",
        "branch delete",
        "branch merge",
        "embed refresh",
        "tag create",
        "tag delete",
        "pipeline",
        "pipeline run",
        "revert",
        "schema apply",
        "shell",
    }
)
# Commands whose positional arguments are not the URI of a graph.
WITHOUT_URI = frozenset(
    {"query", "read", "explain", "mutate", "change", "get", "history", "blame", "blob get", "blob stat"}
)
_CONTROL = frozenset({"cluster", "policy", "queries"})
_LOCAL = frozenset({"alias", "embed", "fmt", "help", "login", "logout", "pipeline", "profile", "version"})


@dataclass(frozen=True)
class GlobalOptions:
    """The values of the global options."""

    actor: str | None = None
    store: str | None = None
    server: str | None = None
    graph: str | None = None
    profile: str | None = None
    cluster: str | None = None
    yes: bool = False
    quiet: bool = False
    verify_reads: bool = False

    def names(self) -> list[str]:
        """Return the names of the options that are set and that address a graph or name an actor."""
        values = {
            "--store": self.store,
            "--server": self.server,
            "--graph": self.graph,
            "--profile": self.profile,
            "--cluster": self.cluster,
            "--as": self.actor,
        }
        return [name for name, value in values.items() if value is not None]


def capability(command: str) -> Capability:
    """Return how a command addresses its graph.

    >>> capability("branch list"), capability("optimize"), capability("graphs list"), capability("login")
    ('any', 'direct', 'served', 'local')
    """
    group = command.partition(" ")[0]
    if command in DIRECT:
        return "direct"
    if group == "graphs":
        return "served"
    if group in _CONTROL:
        return "control"
    return "local" if group in _LOCAL else "any"


def refuse_options(command: str, chosen: GlobalOptions) -> None:
    """Raise `InvalidInput` for the first global option that does not apply to the command."""
    kind = capability(command)
    for option in chosen.names():
        refusal = _inapplicable(command, kind, option)
        if refusal is not None:
            raise InvalidInput(refusal)
    if chosen.actor is not None and not (chosen.actor.strip() and chosen.actor.isprintable()):
        raise InvalidInput(f"--as needs a printable name, got {chosen.actor!r}")


def refuse_graph_options(command: str, chosen: GlobalOptions) -> None:
    """Raise `InvalidInput` for the first option that addresses a graph, for a command that does not use one."""
    for option in chosen.names():
        raise InvalidInput(no_graph_error(command, option))


def served_address_error(command: str, option: str) -> str:
    """Return the message for a server address passed to a command that works on storage."""
    return (
        f"`{command}` is a direct (storage-native) command; {option} addresses a served graph and does not "
        f"apply. {_how_to_address(command)}"
    )


def cluster_address_error(command: str, option: str) -> str:
    """Return the message for a cluster address passed to a command that works on the data of a graph."""
    return (
        f"`{command}` works on the data of a graph; {option} addresses a cluster and does not apply. "
        "Pass --server <name> --graph <id>, or --store <uri>."
    )


def _inapplicable(command: str, kind: Capability, option: str) -> str | None:
    if option == "--as":
        if command in WITH_ACTOR:
            return None
        return (
            no_graph_error(command, option)
            if kind == "local"
            else f"`{command}` records no actor; --as does not apply."
        )
    match kind:
        case "local":
            return None if (command, option) == ("profile", "--profile") else no_graph_error(command, option)
        case "served" if option in ("--store", "--cluster", "--graph"):
            return f"`{command}` queries a server; {option} does not apply. Pass --server <name|url>."
        case "control" if command.startswith("cluster "):
            return f"`{command}` reads cluster.yaml; {option} does not apply. Pass --config <dir>."
        case "control" if option in ("--store", "--server"):
            return (
                f"`{command}` reads a server configuration; {option} does not apply. "
                "Pass --cluster <config>, with --graph <id> for one graph."
            )
        case "direct":
            if option == "--server":
                return served_address_error(command, option)
            if option in ("--cluster", "--graph") and command not in CLUSTERED:
                return (
                    f"`{command}` addresses one graph by its storage URI; {option} does not apply. "
                    f"{_how_to_address(command)}"
                )
        case "any" if option == "--cluster" and command not in CLUSTERED:
            return cluster_address_error(command, option)
    return None


def no_graph_error(command: str, option: str) -> str:
    """Return the message for an option that addresses a graph, passed to a command that does not use one."""
    return f"`{command}` does not use a graph; {option} does not apply."


def _how_to_address(command: str) -> str:
    return (
        "Pass a storage URI, or --cluster <dir> --graph <id>."
        if command in CLUSTERED
        else "Pass a storage URI."
    )
