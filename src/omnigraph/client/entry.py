"""Connect to graphs on a server. The first call imports the HTTP client, so `import omnigraph` is fast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from omnigraph.errors import InvalidInput, OmnigraphError

if TYPE_CHECKING:
    import httpx

    from omnigraph.client.graph import RemoteGraph

# The number of seconds without a byte after which a read fails. The server times out a little earlier, with an
# error that says why.
READ_TIMEOUT = 360.0
# The address of a server in the same process.
LOCAL = "http://localhost"


@dataclass(frozen=True, slots=True)
class ServedGraph:
    """A graph on a server, and the address of its storage."""

    graph_id: str
    uri: str


def connect(
    url: str,
    graph: str,
    *,
    token: str | None = None,
    timeout: float | None = READ_TIMEOUT,
    storage_options: Mapping[str, str] | None = None,
    ca_file: str | None = None,
) -> RemoteGraph:
    """Connect to a graph on a server. The handle has all methods of a local graph.

    `url` is the address of the server, `graph` the id of the graph. The bearer `token` identifies the actor.
    The graph is requested immediately: `NotFound` is raised if it does not exist, `PermissionDenied` if the
    token is invalid.

    A read fails if no data arrives for `timeout` seconds; None means no limit. A write has no timeout while the
    connection is alive. A write whose response is lost raises `OutcomeUnknown`. It is not retried unless it has an
    `idempotency_key`. Proxy settings of the environment are ignored.

    A server that implements only the public HTTP contract is supported as well. Calls and arguments that the
    contract does not have raise `InvalidInput`, and `actor` is None.

    `ca_file` is the PEM file of the certificate authorities that may have issued the TLS certificate of the server.
    Without it the environment variable ``SSL_CERT_FILE`` or else the well-known authorities decide.

    `storage_options` are used for the object stores that loads read from and exports write to. They are not
    sent to the server.
    """
    from omnigraph.client.graph import RemoteGraph
    from omnigraph.client.transport import Transport

    connection = {
        "url": check_url(url),
        "graph": graph,
        "token": check_token(token),
        "timeout": check_timeout(timeout),
        "storage_options": None if storage_options is None else dict(storage_options),
        "ca_file": ca_file,
    }
    transport = Transport(graph_url(url, graph), check_token(token), timeout, ca_file)
    try:
        actor = transport.call("GET", "", lambda answer: answer["actor_id"])
    except BaseException as error:
        transport.close()
        if isinstance(error, OmnigraphError) and error.details.get("status") in (404, 405):
            return _connect_to_public_server(connection)
        raise
    return RemoteGraph(transport, actor, connection)


def connect_through(
    adapter: httpx.BaseTransport, graph: str, token: str | None, actor: str | None
) -> RemoteGraph:
    """Return a handle on a graph whose server is reached through an adapter, such as one in the same process."""
    from omnigraph.client.graph import RemoteGraph
    from omnigraph.client.transport import Transport

    transport = Transport(graph_url(LOCAL, graph), check_token(token), READ_TIMEOUT, adapter=adapter)
    return RemoteGraph(transport, actor, {"url": LOCAL, "graph": graph, "token": token})


def _connect_to_public_server(connection: Mapping[str, Any]) -> RemoteGraph:
    """Connect to a server that does not have our own route for a graph. Our own errors have no status."""
    from omnigraph.client.graph import RemoteGraph
    from omnigraph.client.public_contract import PublicTransport

    url = graph_url(connection["url"], connection["graph"])
    transport = PublicTransport(url, connection["token"], connection["timeout"], connection["ca_file"])
    try:
        transport.call("GET", "/branches", lambda answer: answer["branches"])
    except BaseException:
        transport.close()
        raise
    # The contract has no route that tells the actor of a token.
    return RemoteGraph(transport, None, connection)


def list_graphs(
    url: str, token: str | None = None, timeout: float | None = READ_TIMEOUT
) -> list[ServedGraph]:
    """Return the graphs of a server, by id. Needs the permission to list graphs."""
    from omnigraph.client.transport import Transport
    from omnigraph.protocol.codec import decode

    transport = Transport(check_url(url), check_token(token), check_timeout(timeout))
    try:
        return transport.call("GET", "/graphs", lambda answer: decode(list[ServedGraph], answer["graphs"]))
    finally:
        transport.close()


def check_url(url: str) -> str:
    """Return the URL of a server in its normal form. Raises `InvalidInput` if it is invalid.

    >>> check_url("http://127.0.0.1:8080/")
    'http://127.0.0.1:8080'
    """
    invalid = "the address of a server must be a URL such as http://host:8080"
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError:
        # The message of the error repeats a part of the URL, which may be a secret.
        raise InvalidInput(invalid) from None
    if parts.username is not None or parts.password is not None:
        # The message does not repeat the URL, because it has a password.
        raise InvalidInput(
            "the address of a server must not have a user or a password", hint="pass a bearer token"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidInput(invalid, details={} if set(url) & set("@?#") else {"url": url})
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def check_token(token: str | None) -> str | None:
    """Return a bearer token without surrounding spaces. Raises `InvalidInput`, which does not repeat the token."""
    if token is None:
        return None
    stripped = token.strip()
    if not stripped or not stripped.isascii() or not stripped.isprintable() or " " in stripped:
        raise InvalidInput("a token must be printable ASCII without spaces")
    return stripped


def check_timeout(timeout: float | None) -> float | None:
    """Return a timeout in seconds, or None for no limit. Raises `InvalidInput` if it is not positive and finite."""
    if timeout is not None and not 0 < timeout < math.inf:
        raise InvalidInput(f"a timeout must be a positive number of seconds, got {timeout}")
    return timeout


def graph_url(url: str, graph: str) -> str:
    """Return the URL of a graph on a server."""
    from omnigraph.client.request_names import segment

    return f"{check_url(url)}/graphs/{segment(graph)}"


def reconnect(connection: Mapping[str, Any]) -> RemoteGraph:
    """Connect with the arguments of another handle. Pickled handles call it."""
    return connect(**connection)
