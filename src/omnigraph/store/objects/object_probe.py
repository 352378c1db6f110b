"""Probes of objects outside a graph: whether an object exists, without reading its content."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any

from omnigraph.errors import ExternalBlobError, NotFound, OmnigraphError
from omnigraph.store.location import Location
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import count_requests
from omnigraph.store.storage_options import RetryPolicy, StorageOptions

_CONCURRENT_PROBES = 16


def probe_objects(uris: Iterable[str], options: StorageOptions | None = None) -> None:
    """Raise `ExternalBlobError` for the first of these URIs whose object cannot be found.

    One request is sent for each URI, several at the same time. `options` are the storage options of S3.
    """
    distinct = list(dict.fromkeys(uris))
    if not distinct:
        return
    options = options or {}
    with ThreadPoolExecutor(min(_CONCURRENT_PROBES, len(distinct))) as pool:
        for uri, reason in zip(distinct, pool.map(lambda uri: _failure(uri, options), distinct), strict=True):
            if reason is not None:
                raise ExternalBlobError(
                    f"the external blob {uri} cannot be found: {reason}",
                    details={"uri": uri, "reason": reason},
                    hint="store the object first, or check the access to it",
                )


def _failure(uri: str, options: StorageOptions) -> str | None:
    """Return why an object cannot be found, or None if it exists."""
    try:
        if uri.startswith("file:"):
            return None if Path(Location.parse(uri).path).is_file() else "no such file"
        if uri.startswith(("http:", "https:")):
            return _http_failure(uri, RetryPolicy.of(options).timeout)
        store, key = ObjectStore.split_uri(uri, options)
        store.head(key)
    except NotFound:
        return "no such object"
    except OmnigraphError as error:
        return error.reason
    return None


def _http_failure(uri: str, timeout: float) -> str | None:
    count_requests(reads=1)
    request = urllib.request.Request(uri, method="HEAD")
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=timeout):
            return None
    except urllib.error.HTTPError as error:
        return f"the server responded {error.code}"
    except (OSError, HTTPException, ValueError) as error:
        return f"the request failed: {getattr(error, 'reason', error)}"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it could lead out of the allowed bases."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
