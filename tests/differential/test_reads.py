"""Random reads of random graphs give what they give by the book, on every layout and in every way to run them.

Each example is a graph and a few reads of it; `OMNIGRAPH_EXAMPLES` is the number of graphs. A failure prints the
graph, the read and the ``@reproduce_failure`` that replays it. With `OMNIGRAPH_SHRINK=1` it is made small first,
which takes minutes, because every attempt stores a graph.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from omnigraph.lang.gq.query_parameters import bind_params
from tests.differential.comparing import explain_difference
from tests.differential.engine_rows import engine_rows, open_handle, ways_to_run
from tests.differential.golden import check_text
from tests.differential.graphs import graphs
from tests.differential.naive import naive_result
from tests.differential.queries import reads
from tests.differential.stored import LAYOUTS, stored_graph
from tests.support.places import fresh_memory

EXAMPLES = int(os.environ.get("OMNIGRAPH_EXAMPLES", "15"))
READS = 8
SLOW_PHASES = () if os.environ.get("OMNIGRAPH_SHRINK") == "1" else (Phase.shrink, Phase.explain)
# What generated moments are compared with: after all of them but the last, as the clock is.
NOW = 1_750_000_000_000


@given(st.data())
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    phases=[phase for phase in Phase if phase not in SLOW_PHASES],
    suppress_health_check=list(HealthCheck),
)
def test_random_reads_give_what_they_give_by_the_book(data: st.DataObject) -> None:
    graph = data.draw(graphs(), label="graph")
    layout = data.draw(st.sampled_from(list(LAYOUTS)), label="layout")
    with open_handle(stored_graph(graph, fresh_memory(), layout).location.uri) as handle:
        for number in range(READS):
            read = data.draw(reads(graph), label=f"read {number}")
            query = check_text(read.text, graph)
            expected = naive_result(query, graph, bind_params(query.params, read.params), NOW)
            for expand, projection in ways_to_run(query, number):
                rows = engine_rows(handle, read.text, read.params, expand=expand, projection=projection)
                difference = explain_difference(query, expected, rows)
                assert difference is None, (
                    f"{difference}\n(expand {expand}, projection {projection})\n{read.text}"
                )
