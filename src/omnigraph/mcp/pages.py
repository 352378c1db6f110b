"""Pages of results: lists that are bounded in items and in bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from omnigraph.errors import ResourceLimit

DEFAULT_ITEMS: Final = 100
MAX_ITEMS: Final = 1000
# A result goes into the context of a language model, which is far smaller than the memory of the process.
MAX_BYTES: Final = 200_000


@dataclass(frozen=True, slots=True)
class Page:
    """The items of a page. `next_offset` is the number of items before the next page, None on the last page."""

    items: list[Any]
    next_offset: int | None


def take_page(items: Iterable[Any], offset: int, limit: int, max_bytes: int = MAX_BYTES) -> Page:
    """Return at most `limit` JSON items after the first `offset`, with at most `max_bytes` of JSON text.

    Only the items up to the one after the page are read. Raises `ResourceLimit` if the first item of the page is
    larger than a page.

    >>> take_page("abcde", offset=1, limit=2)
    Page(items=['b', 'c'], next_offset=3)
    >>> take_page("abcde", offset=3, limit=2)
    Page(items=['d', 'e'], next_offset=None)
    >>> take_page(["long", "longer"], offset=0, limit=2, max_bytes=10)
    Page(items=['long'], next_offset=1)
    """
    page: list[Any] = []
    size = 0
    for position, item in enumerate(items):
        if position < offset:
            continue
        item_size = len(json.dumps(item, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        if item_size > max_bytes:
            if page:
                return Page(page, position)
            raise ResourceLimit(
                f"an item of the result has {item_size:,} bytes; a page holds up to {max_bytes:,} bytes",
                hint="return fewer properties",
                details={"resource": "page_bytes", "limit": max_bytes, "actual": item_size},
            )
        size += item_size
        if len(page) == limit or size > max_bytes:
            return Page(page, position)
        page.append(item)
    return Page(page, None)
