"""Writes as users make them: mutations and loads through `Graph`, on a graph with a few people who know each other.

Every write leaves the same people and edges each time, except for the ids of edges that it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from omnigraph.graph.repository import Repository

if TYPE_CHECKING:
    from omnigraph.api.local.local_graph import LocalGraph
    from omnigraph.rules.load_mode import LoadMode

# What the same write does once more: the same state, the error of that code, or nothing that is worth a commit.
Again: TypeAlias = Literal["same", "constraint_violation", "nothing", "more"]
Source: TypeAlias = dict[str, list[dict[str, object]]]
WRITER: Final = "writer"

_PEOPLE: Final[Source] = {
    "Person": [{"name": name, "age": age} for age, name in enumerate(("ann", "bob", "cy", "dan"), start=30)],
    "Knows": [
        {"id": "k1", "from": "ann", "to": "bob", "since": 1},
        {"id": "k2", "from": "bob", "to": "cy", "since": 2},
        {"id": "k3", "from": "dan", "to": "ann", "since": 3},
    ],
}
_NEW: Final[Source] = {
    "Person": [{"name": "eve", "age": 40}, {"name": "fay", "age": 41}],
    "Knows": [{"id": "k4", "from": "eve", "to": "fay", "since": 4}],
}
_CHANGED: Final[Source] = {
    "Person": [{"name": "gus", "age": 51}, {"name": "ann", "age": 52}],
    "Knows": [
        {"id": "k1", "from": "ann", "to": "gus", "since": 4},
        {"id": "k1", "from": "gus", "to": "ann", "since": 5},
    ],
}


@dataclass(frozen=True, slots=True)
class ApiWrite:
    """A write, and what it comes to when it is made a second time."""

    act: Callable[[Repository], str]
    again: Again
    bulk: bool = False


def as_graph(repository: Repository) -> LocalGraph:
    """The graph of an open repository as users have it."""
    # A worker that writes without it should not have to wait for the whole read path to be imported.
    from omnigraph.api.local.local_graph import LocalGraph
    from omnigraph.api.local.open_options import OpenOptions
    from omnigraph.read.reader import Reader

    return LocalGraph(repository, Reader(), OpenOptions(actor=WRITER))


def make_people(repository: Repository) -> None:
    """Add the people that the writes here work on."""
    as_graph(repository).load(_PEOPLE, "merge", actor="founder")


@contextmanager
def loading_in_bulk() -> Iterator[None]:
    """Let this process take every load for one that does not fit in memory."""
    from omnigraph.load import spool

    usual = spool.LoadLimits
    limits = usual(rows=0, batch_rows=2)
    spool.LoadLimits = lambda: limits  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        spool.LoadLimits = usual  # type: ignore[misc]


def _mutate(*statements: str, key: str | None = None) -> Callable[[Repository], str]:
    source = "query change() { " + "\n".join(statements) + " }"

    def act(repository: Repository) -> str:
        commit = as_graph(repository).mutate(source, idempotency_key=key).commit
        return "" if commit is None else commit.id

    return act


def _load(source: Source, mode: LoadMode, *, bulk: bool = False) -> Callable[[Repository], str]:
    def act(repository: Repository) -> str:
        way: AbstractContextManager[None] = loading_in_bulk() if bulk else nullcontext()
        with way:
            commit = as_graph(repository).load(source, mode).commit
        return "" if commit is None else commit.id

    return act


_MUTATIONS: Final[dict[str, ApiWrite]] = {
    "mutate-insert": ApiWrite(_mutate('insert Person { name: "eve", age: 40 }'), "nothing"),
    "mutate-upsert": ApiWrite(_mutate('insert Person { name: "ann", age: 41 }'), "nothing"),
    "mutate-edge": ApiWrite(_mutate('insert Knows { from: "cy", to: "dan", since: 9 }'), "more"),
    "mutate-update": ApiWrite(_mutate('update Person set { age: 60 } where name = "bob"'), "nothing"),
    "mutate-delete": ApiWrite(_mutate('delete Person where name = "ann"'), "nothing"),
    "mutate-mixed": ApiWrite(
        _mutate(
            'insert Person { name: "eve", age: 40 }',
            'delete Person where name = "bob"',
            'update Person set { age: 61 } where name = "cy"',
            'delete Knows where from = "dan"',
            'insert Person { name: "bob", age: 1 }',
        ),
        "nothing",
    ),
}
_LOADS: Final[dict[str, tuple[Source, LoadMode, Again]]] = {
    "append": (_NEW, "append", "constraint_violation"),
    "merge": (_CHANGED, "merge", "nothing"),
    "overwrite": (_NEW, "overwrite", "same"),
    "overwrite-to-empty": ({"Person": [], "Knows": []}, "overwrite", "same"),
}

API_WRITES: Final[dict[str, ApiWrite]] = {
    **_MUTATIONS,
    **{
        f"load-{name}": ApiWrite(_load(source, mode), again) for name, (source, mode, again) in _LOADS.items()
    },
    # Without rows there is nothing that would not fit, so that no intent is worth its while.
    **{
        f"bulk-load-{name}": ApiWrite(
            _load(source, mode, bulk=True), again, bulk=name != "overwrite-to-empty"
        )
        for name, (source, mode, again) in _LOADS.items()
    },
}


def _give_knows_a_key(repository: Repository) -> str:
    """Give the edges an id that is derived from their endpoints."""
    graph = as_graph(repository)
    source = graph.schema.source()
    keyed = source if "@key(src" in source else source.replace("since: I32?", "since: I32?  @key(src, dst)")
    commit = graph.schema.apply(keyed).commit
    return "" if commit is None else commit.id


SCHEMA_WRITES: Final[dict[str, ApiWrite]] = {"edge-key": ApiWrite(_give_knows_a_key, "nothing", bulk=True)}
