"""Servers by the operator's names for them, and what their addresses look like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.cli.settings.config import Config

SCHEMES = ("http", "https")
_PORTS = {"http": 80, "https": 443}
_GRAPHS = "graphs"


@dataclass(frozen=True)
class Server:
    """A server. `name` is what the operator calls it, if anything."""

    url: str
    name: str | None = None


def find_server(config: Config, named: str) -> Server:
    """The server that is meant by a name of the settings, or by its URL.

    Raises `InvalidInput` when it is neither.
    """
    if named in config.servers:
        return Server(config.servers[named], named)
    if is_url(named):
        from omnigraph.client.entry import check_url

        url = check_url(named)
        return Server(url, name_of(config, url))
    from omnigraph.cli.settings.config import settings_name
    from omnigraph.lang.suggestions import did_you_mean

    raise InvalidInput(
        f"no server is called '{named}'{did_you_mean(named, list(config.servers))}",
        hint=f"pass its http(s):// URL, or name it under servers: in {settings_name()}",
        details={"server": named},
    )


def is_url(text: str) -> bool:
    """Whether a text looks like the address of a server.

    >>> is_url("HTTPS://example.org"), is_url("s3://bucket/g"), is_url("prod")
    (True, False, False)
    """
    scheme, mark, _ = text.partition("://")
    return bool(mark) and scheme.lower() in SCHEMES


def name_of(config: Config, url: str) -> str | None:
    """The operator's name for the server at a URL: that whose own URL is the longest beginning of it.

    Whole parts of the path count, and the same host and port: no other server may look like a beginning.
    """
    found = [
        (len(known), name) for name, known in config.servers.items() if _is_below(_split(url), _split(known))
    ]
    return max(found, key=lambda item: item[0])[1] if found else None


def split_graph(url: str) -> tuple[str, str] | None:
    """The server and the graph of a URL that is a graph's own; None for another.

    >>> split_graph("http://127.0.0.1:8080/graphs/team"), split_graph("http://127.0.0.1:8080")
    (('http://127.0.0.1:8080', 'team'), None)
    """
    path = urlsplit(url).path.strip("/").split("/")
    if len(path) < 2 or path[-2] != _GRAPHS:
        return None
    return url.rstrip("/").rsplit("/", 2)[0], unquote(path[-1])


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        # A port that is no number is found out only when it is asked for.
        _ = parts.port
    except ValueError:
        return None
    return parts


def _is_below(url: SplitResult | None, known: SplitResult | None) -> bool:
    if url is None or known is None or _origin(url) != _origin(known):
        return False
    above = [part for part in known.path.split("/") if part]
    return [part for part in url.path.split("/") if part][: len(above)] == above


def _origin(parts: SplitResult) -> tuple[str, str | None, int]:
    return parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme]
