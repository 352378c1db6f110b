"""What the generators give is worth comparing: queries are valid and every construct of the language occurs."""

from __future__ import annotations

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.lang.params import bind_params
from tests.differential.comparing import explain_difference
from tests.differential.golden import check_text
from tests.differential.graphs import graphs
from tests.differential.naive import naive_result
from tests.differential.queries import GeneratedRead, reads

CONSTRUCTS = {
    "inline match": r": \w+ \{",
    "hops": r"\{\d,\d\}",
    "undirected": r"<\w+>",
    "edge binding": r"\$\w+ \$\w+:",
    "anonymous": r"\$_",
    "negation": r"not \{",
    "nested negation": r"not \{.*not \{",
    "optional": r"optional \{",
    "and": r" and ",
    "or": r" or ",
    "not": r"not \(",
    "in": r" in \[",
    "not in": r"not in \[",
    "is null": r"is null",
    "is not null": r"is not null",
    "contains": r" contains ",
    "starts_with": r" starts_with ",
    "search": r"search\(",
    "match_text": r"match_text\(",
    "fuzzy": r"fuzzy\(",
    "nearest": r"nearest\(",
    "bm25": r"bm25\(",
    "rrf": r"rrf\(",
    "parameter": r"query q\(\$",
    "list parameter": r"\$v\d: \[",
    "now": r"now\(\)",
    "distinct": r"return distinct",
    "count": r"count\(\$",
    "count distinct": r"count\(distinct",
    "sum": r"sum\(",
    "avg": r"avg\(",
    "min": r"min\(",
    "max": r"max\(",
    "collect": r"collect\(\$",
    "collect distinct": r"collect\(distinct",
    "order": r"order \{",
    "order descending": r" desc",
    "order by several": r"order \{[^}]*,[^}]* \}",
    "skip": r"skip \d",
    "limit": r"limit \d",
}
SEEN: set[str] = set()


@given(st.data())
@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def generate(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    for _ in range(4):
        read: GeneratedRead = data.draw(reads(graph))
        query = check_text(read.text, graph)
        found = naive_result(query, graph, bind_params(query.params, read.params), now=0)
        assert explain_difference(query, found, found.rows) is None
        SEEN.update(name for name, pattern in CONSTRUCTS.items() if re.search(pattern, read.text))


def test_generated_reads_are_valid_and_show_every_construct() -> None:
    generate()
    assert set(CONSTRUCTS) - SEEN == set()
