"""A process that competes for objects; see `tests.support.workers`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from omnigraph.errors import NotFound
from omnigraph.store.objects.object_store import ObjectStore
from tests.support.workers import report, wait_for_start

MIB = 1024 * 1024


def create(store: ObjectStore, keys: list[str]) -> list[str]:
    """Return the keys that this process created."""
    return [key for key in keys if store.create_if_absent(key, b"everyone sends the same")]


def count_up(store: ObjectStore, key: str, times: int) -> int:
    """Increment a counter `times` times by compare-and-swap; return the number of lost swaps."""
    lost = 0
    for _ in range(times):
        for _attempt in range(1000):
            current = store.get(key)
            if store.replace_if_matches(key, b"%d" % (int(current.data) + 1), current.etag) is not None:
                break
            lost += 1
        else:
            raise AssertionError("a counter never gave way")
    return lost


def replace(store: ObjectStore, key: str, letter: str, times: int) -> int:
    """Replace a large object by a repeated letter."""
    for _ in range(times):
        store.put(key, letter.encode() * MIB)
    return times


def watch(store: ObjectStore, key: str, times: int) -> list[str]:
    """Read an object repeatedly; print a line for every incomplete read."""
    broken = []
    for _ in range(times):
        try:
            data = store.get(key).data
        except NotFound:
            broken.append("missing")
            continue
        if len(data) != MIB or data.count(data[:1]) != MIB:
            broken.append(f"{len(data)} bytes, {len(set(data))} letters")
    return broken


def main() -> None:
    task: dict[str, Any] = json.loads(sys.argv[1])
    store = ObjectStore.open(task["uri"], task["options"])
    kinds: dict[str, Callable[..., object]] = {
        "create": create,
        "count_up": count_up,
        "replace": replace,
        "watch": watch,
    }
    work = kinds[task["work"]]
    wait_for_start()
    report(work(store, **task["arguments"]))


if __name__ == "__main__":
    main()
