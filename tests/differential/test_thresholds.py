"""Sizes decide how a read is run, never what it gives: the corpus with every size taken for a large one.

Small graphs would otherwise never come to what runs on large ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine import csr, reachability
from omnigraph.engine.memory import cached_table, id_index
from omnigraph.engine.projection import sorting
from omnigraph.read import binding_table, endpoints, match, project, topology
from tests.differential.comparing import explain_difference
from tests.differential.engine_rows import engine_rows, open_handle
from tests.differential.golden import Case, check_text, expected_result, load_cases, load_graph
from tests.differential.stored import stored_graph
from tests.support.places import fresh_memory

CASES = [case for case in load_cases() if case.error is None]

LARGE = [
    (sorting, "SMALL_INPUT", 0),
    (sorting, "SMALL_TABLE", 0),
    (csr, "_FEW_SOURCES", 0),
    (csr, "_SEARCH_BLOCK", 2),
    (reachability, "CHUNK", 2),
    (binding_table, "_MIN_MERGED_ROWS", 1),
    (binding_table, "_DENSE", 0),
    (match, "_ROWS_PER_BATCH", 2),
    (project, "_IMMEDIATE_ROWS", 0),
    (id_index, "MAX_UNSORTED_IDS", 1),
    (cached_table, "_FEW_IDS", 0),
    (cached_table, "_IDS_PER_FILTER", 2),
    (topology, "_IDS_PER_FILTER", 2),
    (endpoints, "_MAX_FETCHED_ROWS", 0),
]


@pytest.fixture(scope="class")
def large() -> Iterator[dict[str, og.LocalGraph]]:
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in LARGE:
            assert hasattr(module, name)
            patch.setattr(module, name, value)
        yield {}


@pytest.fixture(scope="class")
def cold() -> Iterator[dict[str, og.LocalGraph]]:
    """Tables too large to keep: nothing is in memory, every column and edge is looked up in storage."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cached_table, "SMALL_ROWS", 0)
        patch.setattr(cached_table, "_USES_UNTIL_CACHED", 1 << 30)
        patch.setattr(topology, "SMALL_EDGES", 0)
        patch.setattr(topology, "_USES_UNTIL_CACHED", 1 << 30)
        yield {}


def rows_differ(case: Case, handles: dict[str, og.LocalGraph]) -> str | None:
    if case.graph not in handles:
        uri = stored_graph(load_graph(case.graph), fresh_memory(), "half indexed").location.uri
        handles[case.graph] = open_handle(uri)
    query = check_text(case.text, load_graph(case.graph))
    rows = engine_rows(handles[case.graph], case.text, case.params)
    return explain_difference(query, expected_result(case, query), rows)


def every_second(first: int) -> list[Any]:
    """All cases, of which half are long. Each case runs in one setting; `make faults` runs it in both."""
    return [
        case if number % 2 == first else pytest.param(case, marks=pytest.mark.long)
        for number, case in enumerate(CASES)
    ]


class TestLarge:
    """One class a setting: it ends with the class."""

    @pytest.mark.parametrize("case", every_second(0), ids=str)
    def test_what_runs_on_large_graphs_gives_the_same_rows(
        self, case: Case, large: dict[str, og.LocalGraph]
    ) -> None:
        assert rows_differ(case, large) is None


class TestCold:
    """Nothing is kept."""

    @pytest.mark.parametrize("case", every_second(1), ids=str)
    def test_what_is_looked_up_in_storage_gives_the_same_rows(
        self, case: Case, cold: dict[str, og.LocalGraph]
    ) -> None:
        assert rows_differ(case, cold) is None
