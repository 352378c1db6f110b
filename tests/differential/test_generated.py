"""What the generators give is worth comparing: queries are valid and every construct of the language occurs."""

from __future__ import annotations

import re
from itertools import cycle

from omnigraph.lang.gq.query_parameters import bind_params
from tests.differential.golden import check_text
from tests.differential.graphs import SCHEMAS
from tests.differential.naive_graph import graph_of
from tests.differential.queries import seeded_read

CONSTRUCTS = {
    "inline match": r": \w+ \{",
    "hops": r"\{\d,\d\}",
    "undirected": r"<\w+>",
    "edge binding": r"\$\w+ \$\w+:",
    "anonymous": r"\$_",
    "negation": r"not \{",
    "nested negation": r"not \{.*not \{",
    "optional": r"optional \{",
    "optional inside a negation": r"not \{.*optional \{",
    "anonymous in an optional inside a negation": r"not \{.*optional \{[^{}]*\$_",
    "negation in an optional inside a negation": r"not \{.*optional \{.*not \{",
    "a name of a negation renewed": r"not \{[^{}]*\$\w+ \w+ \$(\w) [^{}]*\}\n.* \w+ \$\1\b",
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
    "search as a column": r"return .*(search|match_text|fuzzy)\([^()]*\) as",
    "search in an aggregate": r"(count|collect)\((search|match_text|fuzzy)",
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
SEEDS = range(400)


def test_generated_reads_are_valid_and_show_every_construct() -> None:
    seen: set[str] = set()
    for seed, schema in zip(SEEDS, cycle(SCHEMAS), strict=False):
        graph = graph_of(schema, [])
        read = seeded_read(graph.catalog.schema, seed)
        bind_params(check_text(read.text, graph).params, read.params)
        seen.update(name for name, pattern in CONSTRUCTS.items() if re.search(pattern, read.text))
    assert set(CONSTRUCTS) - seen == set()
