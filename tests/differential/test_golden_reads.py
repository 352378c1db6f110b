"""Every read of the corpus gives its expected rows however the graph is stored and however the read is run."""

from __future__ import annotations

from functools import cache

import pytest

import omnigraph as og
from tests.differential.comparing import explain_difference
from tests.differential.engine_rows import engine_rows, open_handle, ways_to_run
from tests.differential.golden import Case, check_text, expected_result, load_cases, load_graph
from tests.differential.stored import LAYOUTS, stored_graph
from tests.support.places import fresh_memory

CASES = [case for case in load_cases() if case.error is None]


@cache
def handle(graph: str, layout: str) -> og.LocalGraph:
    return open_handle(stored_graph(load_graph(graph), fresh_memory(), layout).location.uri)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_read_of_the_corpus_gives_its_rows_on_every_layout(case: Case) -> None:
    query = check_text(case.text, load_graph(case.graph))
    expected = expected_result(case, query)
    differences = {}
    for number, layout in enumerate(LAYOUTS):
        for expand, projection in ways_to_run(query, number):
            rows = engine_rows(
                handle(case.graph, layout), case.text, case.params, expand=expand, projection=projection
            )
            differences[layout, expand, projection] = explain_difference(query, expected, rows)
    assert {how: difference for how, difference in differences.items() if difference} == {}


def test_reads_that_return_searches_and_scores_can_be_explained() -> None:
    calls = ("search(", "match_text(", "fuzzy(", "nearest(", "bm25(", "rrf(")
    returning = [
        case
        for case in CASES
        if any(call in case.text.partition("return")[2].partition("order")[0] for call in calls)
    ]
    assert {"search", "ranking"} <= {case.file for case in returning}
    for case in returning:
        assert "as SELECT" in handle(case.graph, "one fragment").explain(case.text, case.params)
