"""What an open server does not take from a browser on its machine.

Nobody has to say who they are there, so a page of anybody's in a browser of this machine could do what it likes: a
request without a body needs no leave from the server. And a page whose owner has pointed its name to this machine
may even read the answers. Both give themselves away, by the page that asks and by the name it asks for.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from omnigraph.errors import PermissionDenied

_HINT = "an open server answers this machine alone; give out tokens, or start it with --force"


def is_loopback(host: str) -> bool:
    """Whether only this machine can be reached by a name or an address.

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
    """Return when a request was meant for this machine by somebody on it, else `PermissionDenied`.

    >>> check_local(Headers({"host": "127.0.0.1:8080", "origin": "http://localhost:3000"}))
    """
    name = _host(f"//{headers.get('host', 'localhost')}")
    if not is_loopback(name):
        raise PermissionDenied(f"this server is not '{name}'", hint=_HINT)
    for origin in headers.getlist("origin"):
        if not is_loopback(_host(origin)):
            raise PermissionDenied(f"pages of '{origin}' may not ask this server", hint=_HINT)
    if headers.get("sec-fetch-site") == "cross-site" and "origin" not in headers:
        raise PermissionDenied("pages of other sites may not ask this server", hint=_HINT)


def _host(url: str) -> str:
    """The host of a URL; an empty text where there is none, as for a page that has no origin."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
