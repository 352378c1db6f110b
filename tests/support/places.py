"""Where tests keep graphs: a folder of their own, or memory with a name nobody else uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TypeVar
from uuid import uuid4

import pytest

from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.location import Location

T = TypeVar("T")


def fresh_memory() -> str:
    """Memory that no other test shares."""
    return f"memory://t{uuid4().hex}"


def lance_root(uri: str) -> LanceRoot:
    """The root of a graph at an address, without syncing: tests do not survive power failures."""
    return LanceRoot.at(Location.parse(uri), {}, "os")


@pytest.fixture(params=["local", "memory"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An address with nothing at it, once on disk and once in memory."""
    return str(tmp_path / "graph") if request.param == "local" else fresh_memory()


def together(works: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """Run works in threads that start at the same moment; what each gave or raised, in order."""
    barrier = Barrier(len(works))

    def run(work: Callable[[], T]) -> T | Exception:
        barrier.wait()
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - the test says which errors it expects
            return error

    with ThreadPoolExecutor(max_workers=len(works)) as pool:
        return list(pool.map(run, works))
