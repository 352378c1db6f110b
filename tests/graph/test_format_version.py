"""The format version: unsupported versions, migrations, and a complete chain of migrations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import pytest

from omnigraph.errors import StorageError, UnsupportedFormat
from omnigraph.graph.format_version import (
    CURRENT,
    MIGRATIONS,
    OLDEST_SUPPORTED,
    Migration,
    check_format,
    pending_migrations,
)
from omnigraph.graph.repository import Mode, Repository
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_change import ManifestChange
from tests.support.places import together
from tests.support.repositories import handle, make_graph, people, put


def stamp_of(graph: Repository) -> int:
    return graph.manifest.registry(graph.manifest.refresh()).format


def restamp(graph: Repository, stamp: int) -> None:
    manifest = graph.manifest
    registry = manifest.registry(manifest.refresh())
    manifest.replace_registry_if_equals(
        manifest.view, registry, ManifestChange(registry=registry.with_format(stamp))
    )


def problems(current: int, floor: int, steps: Iterable[int]) -> list[str]:
    """Return the problems of a migration chain, which must have exactly the steps from the oldest version on."""
    found, wanted = set(steps), set(range(floor, current))
    gaps = [f"no migration leads from format {number} on" for number in sorted(wanted - found)]
    dead = [f"the migration from format {number} is dead: delete it" for number in sorted(found - wanted)]
    return [*gaps, *dead, *(["the floor is above the current format"] if floor > current else [])]


# --- what is opened -------------------------------------------------------------------------------------


def test_a_new_graph_has_the_current_format(uri: str) -> None:
    assert stamp_of(make_graph(uri)) == CURRENT


@pytest.mark.parametrize("mode", ["rw", "r"])
def test_a_newer_format_is_refused_in_both_modes(uri: str, mode: Mode) -> None:
    graph = make_graph(uri)
    restamp(graph, CURRENT + 1)
    with pytest.raises(UnsupportedFormat) as caught:
        handle(graph, mode)
    assert caught.value.hint == "upgrade omnigraph"
    assert caught.value.details == {"format": CURRENT + 1, "supported": [OLDEST_SUPPORTED, CURRENT]}
    assert stamp_of(graph) == CURRENT + 1


@pytest.mark.parametrize("mode", ["rw", "r"])
def test_a_format_below_the_floor_is_refused_in_both_modes(uri: str, mode: Mode) -> None:
    graph = make_graph(uri)
    restamp(graph, OLDEST_SUPPORTED - 1)
    with pytest.raises(UnsupportedFormat) as caught:
        handle(graph, mode)
    assert "export it" in str(caught.value.hint)
    assert stamp_of(graph) == OLDEST_SUPPORTED - 1


def test_every_format_from_the_floor_to_the_current_one_is_read() -> None:
    for stamp in (3, 4, 5):
        check_format(stamp, current=5, oldest=3)
    for stamp in (2, 6):
        with pytest.raises(UnsupportedFormat):
            check_format(stamp, current=5, oldest=3)


def test_a_current_graph_has_nothing_pending() -> None:
    assert pending_migrations(CURRENT) == []


def test_pending_migrations_start_at_the_stamp_and_name_where_they_lead() -> None:
    steps: dict[int, Migration] = {number: partial(_nothing, number) for number in (3, 4)}
    pending = pending_migrations(4, current=5, oldest=3, migrations=steps)
    assert pending == [(5, steps[4])]
    assert [target for target, _ in pending_migrations(3, current=5, oldest=3, migrations=steps)] == [4, 5]


def _nothing(_number: int, _manifest: Manifest) -> None:
    return None


# --- migrating ------------------------------------------------------------------------------------------


class Chain:
    """Two migrations that record the version in storage at the time of their work."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self.steps: Mapping[int, Migration] = {
            number: partial(self._work, number) for number in (CURRENT, CURRENT + 1)
        }

    def _work(self, number: int, manifest: Manifest) -> None:
        self.seen.append((number, manifest.registry(manifest.refresh()).format))

    def run(self, graph: Repository) -> None:
        graph._migrate(CURRENT + 2, OLDEST_SUPPORTED, self.steps)


def test_an_older_graph_is_migrated_step_by_step_work_first_and_stamp_last(uri: str) -> None:
    graph = make_graph(uri)
    put(graph, {"a": "1"})
    assert graph.snapshot().format_version == CURRENT
    steps = Chain()
    steps.run(graph)
    assert steps.seen == [(CURRENT, CURRENT), (CURRENT + 1, CURRENT + 1)]
    assert stamp_of(graph) == graph.snapshot().format_version == CURRENT + 2
    assert people(graph) == {"a": "1"}


def test_migrating_again_does_nothing(uri: str) -> None:
    graph = make_graph(uri)
    steps = Chain()
    steps.run(graph)
    version = graph.manifest.view.version
    steps.run(graph)
    assert len(steps.seen) == 2
    assert graph.manifest.refresh().version == version


def test_a_step_that_fails_leaves_the_stamp_and_is_tried_again(uri: str) -> None:
    graph = make_graph(uri)

    def breaks(_manifest: Manifest) -> None:
        raise StorageError("the disk is full")

    steps = Chain()
    with pytest.raises(StorageError, match="the disk is full"):
        graph._migrate(CURRENT + 2, OLDEST_SUPPORTED, {**steps.steps, CURRENT + 1: breaks})
    assert stamp_of(graph) == CURRENT + 1
    steps.run(graph)
    assert [number for number, _ in steps.seen] == [CURRENT, CURRENT + 1]
    assert stamp_of(graph) == CURRENT + 2


def test_many_migrators_at_once_end_in_one_current_graph(uri: str) -> None:
    graph = make_graph(uri)
    handles = [handle(graph) for _ in range(5)]
    steps = Chain()
    assert together([partial(steps.run, item) for item in handles]) == [None] * 5
    assert stamp_of(graph) == CURRENT + 2
    assert len(graph.manifest.view.of_kind("registry")) == 1
    # The version never decreased, and no version was set before the migrations below it were done.
    assert all(seen >= number for number, seen in steps.seen)


def test_a_late_migrator_never_stamps_backwards(uri: str) -> None:
    graph = make_graph(uri)
    late = handle(graph)
    restamp(graph, CURRENT + 2)
    late._set_format(CURRENT + 1)
    assert stamp_of(graph) == CURRENT + 2


# --- the chain of this release --------------------------------------------------------------------------


def test_the_chain_has_a_step_for_every_supported_format_and_no_dead_ones() -> None:
    assert problems(CURRENT, OLDEST_SUPPORTED, MIGRATIONS) == []


@pytest.mark.parametrize(
    ("current", "floor", "steps", "expected"),
    [
        (3, 1, [1, 2], []),
        (3, 2, [1, 2], ["the migration from format 1 is dead: delete it"]),
        (3, 1, [2], ["no migration leads from format 1 on"]),
        (3, 1, [1, 2, 3], ["the migration from format 3 is dead: delete it"]),
        (4, 1, [1, 2], ["no migration leads from format 3 on"]),
        (1, 2, [], ["the floor is above the current format"]),
    ],
)
def test_the_tripwire_sees_every_way_to_change_only_half(
    current: int, floor: int, steps: list[int], expected: list[str]
) -> None:
    assert problems(current, floor, steps) == expected
