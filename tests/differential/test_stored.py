"""However a graph is stored, its tables hold the same rows; only then may reads of them be compared."""

from __future__ import annotations

import pytest

from omnigraph.graph.repository import Repository
from omnigraph.store.manifest.records import TablePin
from tests.differential.golden import load_graph
from tests.differential.stored import LAYOUTS, arrow_rows, rows_of, stored_graph
from tests.support.places import fresh_memory


def fragments(repository: Repository, pin: TablePin) -> int:
    return len(repository.tables.open(pin.path, pin.version).get_fragments())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_holds_the_same_rows(layout: str) -> None:
    graph = load_graph("values")
    snapshot = stored_graph(graph, fresh_memory(), layout).snapshot()
    for key, table in graph.catalog.tables.items():
        found = snapshot.scan(key)
        expected = arrow_rows(table, rows_of(graph, table))
        # As text, because a NaN does not equal itself.
        assert str(found.sort_by("id").to_pylist()) == str(expected.sort_by("id").to_pylist())


def test_layouts_differ_in_what_they_are_stored_as() -> None:
    graph, key = load_graph("paths"), "edge:Road"
    found = {}
    for layout in LAYOUTS:
        repository = stored_graph(graph, fresh_memory(), layout)
        pin = repository.snapshot().pin(key)
        dataset = repository.tables.open(pin.path, pin.version)
        found[layout] = (fragments(repository, pin) > 1, bool(dataset.describe_indices()))
    assert found == {
        "one fragment": (False, False),
        "many fragments": (True, False),
        "indexed": (False, True),
        "half indexed": (True, True),
        "compacted": (False, True),
    }
