"""The files of the Studio and their HTTP headers. `make studio` builds the files from the sources in `studio/`."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

INDEX: Final = "index.html"
# In the index, the place of the nonce with which the editor may add its style element.
NONCE_MARK: Final = "{{nonce}}"
_MEDIA_TYPES: Final[Mapping[str, str]] = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class StudioFile:
    """A file of the Studio with its media type and entity tag."""

    data: bytes
    media_type: str
    etag: str


@cache
def find_file(name: str) -> StudioFile | None:
    """Return a file of the Studio by its name; None if there is none. Names with folders do not exist."""
    media_type = _MEDIA_TYPES.get(name.rpartition(".")[2])
    if media_type is None or not name.replace(".", "").replace("-", "").isalnum():
        return None
    file = files("omnigraph.studio") / "assets" / name
    if not file.is_file():
        return None
    data = file.read_bytes()
    return StudioFile(data, media_type, f'"{hashlib.sha256(data).hexdigest()[:32]}"')


def render_index(index: StudioFile) -> tuple[bytes, dict[str, str]]:
    """Return the start page with a new nonce, and its headers.

    The policy allows scripts, styles and requests of this server only. Nothing of the page is inline.
    """
    nonce = secrets.token_urlsafe(16)
    headers = {
        "Content-Security-Policy": (
            "default-src 'none'; script-src 'self'; "
            f"style-src 'self' 'nonce-{nonce}'; img-src 'self' data:; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-store",
    }
    return index.data.replace(NONCE_MARK.encode(), nonce.encode()), headers
