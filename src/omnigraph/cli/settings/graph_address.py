"""Find the address of the graph in the command line, the environment or the settings, in this order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from omnigraph.cli.options import GlobalOptions
from omnigraph.cli.settings.config import Config, Profile, ScopeKind, settings_file_name
from omnigraph.cli.settings.servers import is_url
from omnigraph.errors import InvalidInput

PROFILE = "OMNIGRAPH_PROFILE"
SERVER_URL = (
    "a remote graph must be addressed with --server <url> — a positional (or --uri) http(s):// URL "
    "no longer dispatches to a server."
)


class NoGraphAddressed(InvalidInput):
    """The command line, the environment and the settings name no graph.

    Pass one of the options that the message lists, or set a default. No graph was opened.
    """


@dataclass(frozen=True)
class GraphAddress:
    """The address of a graph: its storage URI, or a server or cluster with the id of the graph if it is known.

    `origin` names the option, profile or default that the address comes from, for messages.
    """

    kind: ScopeKind
    value: str
    origin: str
    graph: str | None = None


def find_address(
    config: Callable[[], Config],
    uri: str | None,
    chosen: GlobalOptions,
    environment: Mapping[str, str],
    *,
    takes_uri: bool = True,
) -> GraphAddress:
    """Return the explicit address of a command, else that of its profile, else the default of the settings.

    `takes_uri` says whether the command accepts a URI, for the message. Raises `NoGraphAddressed` if there is no
    address, and `InvalidInput` if there are two explicit ones, if `--graph` is combined with a storage URI, or if
    `--profile` names no profile, even beside an explicit address. `$OMNIGRAPH_PROFILE` is read only without one.
    """
    if chosen.profile is not None:
        get_profile(config(), chosen.profile)
    found = _explicit(uri, chosen)
    if found is None:
        profile = chosen.profile or environment.get(PROFILE)
        found = _default(config(), takes_uri) if not profile else _of_profile(find_profile(config(), profile))
    if chosen.graph is None:
        return found
    if found.kind == "store":
        raise InvalidInput(
            f"--graph selects a graph of a server or cluster; {found.value} addresses a single graph.",
            hint="remove --graph, or pass --server <name|url>",
        )
    if not chosen.graph.strip():
        raise InvalidInput("--graph needs the id of a graph")
    return GraphAddress(found.kind, found.value, found.origin, chosen.graph)


def find_profile(config: Config, name: str) -> Profile:
    """Return the profile with this name. Raises `InvalidInput` if there is none or it is invalid."""
    found = get_profile(config, name)
    if found.error is not None:
        raise InvalidInput(found.error, details={"profile": name})
    return found


def get_profile(config: Config, name: str) -> Profile:
    """Return the profile with this name, which may be invalid. Raises `InvalidInput` if there is none."""
    if not name.strip():
        raise InvalidInput("--profile needs the name of a profile")
    found = config.profiles.get(name)
    if found is None:
        from omnigraph.lang.suggestions import did_you_mean

        raise InvalidInput(
            f"no profile named '{name}'{did_you_mean(name, list(config.profiles))}",
            hint=f"add it under profiles: in {settings_file_name()}",
            details={"profile": name},
        )
    return found


def _explicit(uri: str | None, chosen: GlobalOptions) -> GraphAddress | None:
    found = [
        GraphAddress(kind, value, f"--{kind} {value}")
        for kind, value in _addresses(chosen).items()
        if value is not None
    ]
    if uri is not None:
        if is_url(uri):
            raise InvalidInput(SERVER_URL)
        found.insert(0, GraphAddress("store", uri, uri))
    if len(found) > 1:
        raise InvalidInput(
            f"two graphs addressed: {found[0].origin} and {found[1].origin}; pass exactly one."
        )
    for item in found:
        if not item.value.strip():
            raise InvalidInput(f"--{item.kind} needs a value")
    return found[0] if found else None


def _addresses(chosen: GlobalOptions) -> dict[ScopeKind, str | None]:
    return {"store": chosen.store, "server": chosen.server, "cluster": chosen.cluster}


def _of_profile(profile: Profile) -> GraphAddress:
    kind = profile.kind
    assert kind is not None, "a valid profile has one address"
    return GraphAddress(kind, profile.bound[kind], f"profile '{profile.name}'", profile.default_graph)


def _default(config: Config, takes_uri: bool) -> GraphAddress:
    if config.server is not None:
        return GraphAddress("server", config.server, "defaults.server", config.default_graph)
    if config.store is not None:
        return GraphAddress("store", config.store, "defaults.store")
    positional = "a positional URI, " if takes_uri else ""
    raise NoGraphAddressed(
        f"no graph addressed — pass {positional}--store <uri>, --server <name>, --profile <name>, "
        f"or set a default scope in {settings_file_name()}"
    )
