"""The options that may stand anywhere, and which of them mean something to which command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from omnigraph.errors import InvalidInput

Capability: TypeAlias = Literal["any", "served", "direct", "control", "local"]

DIRECT = frozenset({"init", "optimize", "repair", "cleanup", "lint", "schema plan"})
# The ones among them that also find a graph by the configuration it is served from.
CLUSTERED = frozenset({"optimize", "repair", "cleanup", "lint"})
WITH_ACTOR = frozenset(
    {
        "init",
        "load",
        "ingest",
        "mutate",
        "change",
        "optimize",
        "branch create",
        "branch delete",
        "branch merge",
        "revert",
        "schema apply",
    }
)
# Their positionals mean something else than a graph.
WITHOUT_URI = frozenset({"query", "read", "explain", "mutate", "change", "get", "blob get", "blob stat"})
_CONTROL = frozenset({"policy", "queries"})
_LOCAL = frozenset({"alias", "embed", "fmt", "login", "logout", "profile", "version"})


@dataclass(frozen=True)
class GlobalOptions:
    """What the options that may stand anywhere say."""

    actor: str | None = None
    store: str | None = None
    server: str | None = None
    graph: str | None = None
    profile: str | None = None
    cluster: str | None = None
    yes: bool = False
    quiet: bool = False

    def given(self) -> list[str]:
        """The options that say something about a graph, by name."""
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
    """What kind of graph a command works on.

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
    """Refuse what says nothing to a command: silence would look like obedience."""
    kind = capability(command)
    for option in chosen.given():
        refusal = _refusal(command, kind, option)
        if refusal is not None:
            raise InvalidInput(refusal)
    if chosen.actor is not None and not (chosen.actor.strip() and chosen.actor.isprintable()):
        raise InvalidInput(f"--as needs a readable name, not {chosen.actor!r}")


def refuse_graph_options(command: str, chosen: GlobalOptions) -> None:
    """Refuse whatever names a graph, for a command that needs none."""
    for option in chosen.given():
        raise InvalidInput(useless(command, option))


def not_direct(command: str, given: str) -> str:
    """Why what addresses a server is no address for a command on storage."""
    return (
        f"`{command}` is a direct (storage-native) command; {given} addresses a served graph and does not "
        f"apply. {_way(command)}"
    )


def not_data(command: str, given: str) -> str:
    """Why what addresses a cluster is no address for a command on a graph's data."""
    return (
        f"`{command}` works on the data of a graph; {given} addresses a cluster and does not apply. "
        "Pass --server <name> --graph <id>, or --store <uri>."
    )


def _refusal(command: str, kind: Capability, option: str) -> str | None:
    if option == "--as":
        if command in WITH_ACTOR:
            return None
        # A command without a graph says so for every option alike.
        return (
            useless(command, option)
            if kind == "local"
            else f"`{command}` records no actor; --as does not apply."
        )
    match kind:
        case "local":
            return None if (command, option) == ("profile", "--profile") else useless(command, option)
        case "served" if option in ("--store", "--cluster", "--graph"):
            return f"`{command}` asks a server; {option} does not apply. Pass --server <name|url>."
        case "control" if option in ("--store", "--server"):
            return (
                f"`{command}` looks at what is configured; {option} does not apply. "
                "Pass --cluster <config>, with --graph <id> for one graph."
            )
        case "direct":
            if option == "--server":
                return not_direct(command, option)
            if option in ("--cluster", "--graph") and command not in CLUSTERED:
                return f"`{command}` takes one graph by its storage; {option} does not apply. {_way(command)}"
        case "any" if option == "--cluster":
            return not_data(command, option)
    return None


def useless(command: str, option: str) -> str:
    """Why an option that names a graph says nothing to a command without one."""
    return f"`{command}` works without a graph; {option} does not apply."


def _way(command: str) -> str:
    return (
        "Pass a storage URI, or --cluster <dir> --graph <id>."
        if command in CLUSTERED
        else "Pass a storage URI."
    )
