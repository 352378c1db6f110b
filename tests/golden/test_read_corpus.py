"""The reference evaluator returns the expected rows of every read of the corpus.

The file format is described in `tests.differential.golden`.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.gq.query_parameters import bind_params
from omnigraph.lang.temporal import parse_datetime
from tests.differential.comparing import explain_difference
from tests.differential.golden import READS, Case, check_text, expected_result, load_cases, load_graph
from tests.differential.naive import naive_result

CASES = load_cases()
# Cases do not depend on the time: they compare `now()` with dates centuries away.
NOW = parse_datetime("2025-06-15T12:00:00Z") or 0


@pytest.mark.parametrize("case", [case for case in CASES if case.error is None], ids=str)
def test_a_read_of_the_corpus_gives_its_rows_by_the_book(case: Case) -> None:
    graph = load_graph(case.graph)
    query = check_text(case.text, graph)
    found = naive_result(query, graph, bind_params(query.params, case.params), NOW)
    expected = expected_result(case, query)
    assert explain_difference(query, expected, found.rows) is None
    assert explain_difference(query, found, expected.rows) is None


@pytest.mark.parametrize("case", [case for case in CASES if case.error is not None], ids=str)
def test_a_read_of_the_corpus_is_refused_with_its_code(case: Case) -> None:
    with pytest.raises(LanguageError) as refused:
        check_text(case.text, load_graph(case.graph))
    assert set(re.findall(r"type error: (T\d+):", str(refused.value))) == ({case.error} - {""})


def test_no_two_cases_of_a_file_have_one_title() -> None:
    assert [title for title, times in Counter(map(str, CASES)).items() if times > 1] == []


def test_every_graph_of_the_corpus_is_used() -> None:
    assert {case.graph for case in CASES} == {path.stem for path in READS.glob("*.graph")}


def test_the_corpus_is_large_enough_to_be_a_proof() -> None:
    assert len(CASES) >= 170
