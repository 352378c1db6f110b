"""Ways to a server. What they need is imported when one is taken, so that `import omnigraph` stays light."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.client.graph import RemoteGraph

# Seconds without a byte after which a read is given up. A server gives up a little earlier, and says why.
PATIENCE = 360.0


@dataclass(frozen=True, slots=True)
class ServedGraph:
    """A graph that a server has, and where its data is."""

    graph_id: str
    uri: str


def connect(
    url: str,
    graph: str,
    *,
    token: str | None = None,
    timeout: float | None = PATIENCE,
    storage_options: Mapping[str, str] | None = None,
) -> RemoteGraph:
    """A graph that a server has, with all calls of one that is opened here.

    `url` is the address of the server, `graph` what it calls the graph; the `token` decides who acts. That there is
    such a graph is asked at once: `NotFound` when there is none, `PermissionDenied` for a wrong token.

    A read is given up when nothing comes for `timeout` seconds; None waits forever. Writes are always waited for,
    as long as the other machine is there: one whose answer never came is `OutcomeUnknown`, and is not sent again
    unless it has an `idempotency_key`. Proxies that the environment names are not used.

    `storage_options` are how to reach the stores that loads read from and exports are written to, as in `open`; the
    server does not get them.
    """
    from omnigraph.client.graph import RemoteGraph
    from omnigraph.client.transport import Transport

    opened = {
        "url": check_url(url),
        "graph": graph,
        "token": check_token(token),
        "timeout": check_timeout(timeout),
        "storage_options": None if storage_options is None else dict(storage_options),
    }
    transport = Transport(graph_url(url, graph), check_token(token), timeout)
    try:
        return RemoteGraph(transport, transport.call("GET", "", lambda found: found["actor_id"]), opened)
    except BaseException:
        transport.close()
        raise


def list_graphs(url: str, token: str | None = None, timeout: float | None = PATIENCE) -> list[ServedGraph]:
    """The graphs that a server has, by id, for those who may list them."""
    from omnigraph.client.transport import Transport
    from omnigraph.protocol.codec import decode

    transport = Transport(check_url(url), check_token(token), check_timeout(timeout))
    try:
        return transport.call("GET", "/graphs", lambda found: decode(list[ServedGraph], found["graphs"]))
    finally:
        transport.close()


def check_url(url: str) -> str:
    """The address of a server in its one form, or `InvalidInput`.

    >>> check_url("http://127.0.0.1:8080/")
    'http://127.0.0.1:8080'
    """
    wrong = "the address of a server is like http://host:8080"
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError:
        # What is wrong with it would be told with a part of it, which may be a secret.
        raise InvalidInput(wrong) from None
    if parts.username is not None or parts.password is not None:
        # Not repeated: it is a secret.
        raise InvalidInput("the address of a server holds no user and no password", hint="give a token")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidInput(wrong, details={} if set(url) & set("@?#") else {"url": url})
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def check_token(token: str | None) -> str | None:
    """A token without spaces around it, when it can be one; what is wrong with it is told, not what it is."""
    if token is None:
        return None
    found = token.strip()
    if not found or not found.isascii() or not found.isprintable() or " " in found:
        raise InvalidInput("a token is a text of letters, digits and signs of ASCII without spaces")
    return found


def check_timeout(timeout: float | None) -> float | None:
    """Seconds to wait, or None to wait for ever; else `InvalidInput`."""
    if timeout is not None and not 0 < timeout < math.inf:
        raise InvalidInput(f"a timeout is a number of seconds more than 0, not {timeout}")
    return timeout


def graph_url(url: str, graph: str) -> str:
    """The address of a graph on a server."""
    from omnigraph.client.request_names import segment

    return f"{check_url(url)}/graphs/{segment(graph)}"


def reconnect(opened: Mapping[str, Any]) -> RemoteGraph:
    """The handle that another one was pickled to."""
    return connect(**opened)
