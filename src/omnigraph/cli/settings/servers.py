"""Find servers by name or URL, and take their URLs apart."""

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
class ServerEntry:
    """A server. `name` is its name in the settings, if it has one."""

    url: str
    name: str | None = None


def find_server(config: Config, named: str) -> ServerEntry:
    """Return the server with a name of the settings, or with a URL.

    Raises `InvalidInput` if `named` is neither.
    """
    if named in config.servers:
        return ServerEntry(config.servers[named], named)
    if is_url(named):
        from omnigraph.client.entry import check_url

        url = check_url(named)
        return ServerEntry(url, server_name(config, url))
    from omnigraph.cli.settings.config import settings_file_name
    from omnigraph.lang.suggestions import did_you_mean

    raise InvalidInput(
        f"no server named '{named}'{did_you_mean(named, list(config.servers))}",
        hint=f"pass its http(s):// URL, or add it under servers: in {settings_file_name()}",
        details={"server": named},
    )


def is_url(text: str) -> bool:
    """Whether a text is an HTTP or HTTPS URL.

    >>> is_url("HTTPS://example.org"), is_url("s3://bucket/g"), is_url("prod")
    (True, False, False)
    """
    scheme, mark, _ = text.partition("://")
    return bool(mark) and scheme.lower() in SCHEMES


def server_name(config: Config, url: str) -> str | None:
    """Return the name of the server whose URL is the longest prefix of `url`, or None.

    Scheme, host and port must be equal, and the path is compared by whole segments, so that a token is never sent
    to a server with a similar URL.
    """
    found = [
        (len(known), name) for name, known in config.servers.items() if _is_below(_split(url), _split(known))
    ]
    return max(found, key=lambda item: item[0])[1] if found else None


def split_graph(url: str) -> tuple[str, str] | None:
    """Split the URL of a graph into the URL of its server and the graph id; None for any other URL.

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
        # `port` raises ValueError if it is not a number.
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
