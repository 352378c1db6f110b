"""Protection of an unauthenticated server against web pages in a browser on the same machine.

Without tokens, any web page that the browser has loaded could send requests to the server (cross-site request
forgery). A page whose domain name resolves to a loopback address could also read the responses (DNS rebinding). The
`Host`, `Origin` and `Sec-Fetch-Site` headers reveal both.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from omnigraph.errors import PermissionDenied

_HINT = "an unauthenticated server accepts only local requests; configure tokens or start it with --force"


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is a loopback address.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("graph.example.org")
    (True, True, True, False)
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_local(headers: Headers) -> None:
    """Raise `PermissionDenied` unless the request is for a loopback host and not from a page of another site.

    >>> check_local(Headers({"host": "127.0.0.1:8080", "origin": "http://localhost:3000"}))
    """
    host = _host(f"//{headers.get('host', 'localhost')}")
    if not is_loopback(host):
        raise PermissionDenied(f"host '{host}' is not a loopback address", hint=_HINT)
    for origin in headers.getlist("origin"):
        if not is_loopback(_host(origin)):
            raise PermissionDenied(f"cross-site request from origin '{origin}'", hint=_HINT)
    if headers.get("sec-fetch-site") == "cross-site" and "origin" not in headers:
        raise PermissionDenied("cross-site request", hint=_HINT)


def _host(url: str) -> str:
    """Return the host of a URL, or an empty string if there is none, as for the origin ``null``."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
