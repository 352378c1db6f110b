"""Searches through a vector index: recall, new and deleted rows, filters, options, and the life of the index."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput, ResourceLimit
from omnigraph.lang.diagnostics import LanguageError
from omnigraph.search.vector_search import MAX_EXACT_ROWS
from tests.maintain.damage import delete
from tests.search.vector_graphs import (
    CLUSTERS,
    DIMENSION,
    LAYOUTS,
    ROWS,
    SCHEMA,
    centers,
    documents,
    explain,
    make_indexed,
    num_segments,
    queries,
    recall,
    search,
    text,
    vector_indexes,
)

FLOOR = 0.95
INDEXED = "search index ivf_rq for l2, nprobes 20, refine 5: more than 10,000 candidates"
NEAR = [float(item) for item in centers()[7] + 0.3]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vectors") / "g"
    make_indexed(path).close()
    return path


@pytest.fixture(scope="module")
def read_only(stored: Path) -> Iterator[og.LocalGraph]:
    with og.open(stored, mode="r") as graph:
        yield graph


@pytest.fixture
def graph(stored: Path, tmp_path: Path) -> Iterator[og.LocalGraph]:
    shutil.copytree(stored, tmp_path / "g")
    with og.open(tmp_path / "g", durability="os", upkeep="off") as graph:
        yield graph


def insert(graph: og.LocalGraph, name: str, vector: list[float], **where: str) -> None:
    graph.mutate(
        f"query add($v: Vector({DIMENSION})) {{"
        f' insert Doc {{ name: "{name}", part: 1, cluster: 0, v: $v }} }}',
        {"v": vector},
        **where,
    )


# --- recall ------------------------------------------------------------------------------------------------


def test_nearest_through_the_index_finds_the_rows_of_an_exact_search(read_only: og.LocalGraph) -> None:
    assert explain(read_only).splitlines()[0] == INDEXED
    assert recall(read_only) >= FLOOR


@pytest.mark.parametrize(
    ("kind", "metric"),
    [("ivf_pq", "cosine"), ("ivf_rq", "cosine"), pytest.param("hnsw", "dot", marks=pytest.mark.slow)],
)
def test_nearest_with_each_kind_of_index_finds_the_rows_of_an_exact_search(kind: str, metric: str) -> None:
    schema = SCHEMA.replace("@index", f"@index(kind: {kind}, metric: {metric})")
    with make_indexed(f"memory://{kind}-{metric}", schema) as graph:
        assert vector_indexes(graph) == {f"v_7_{kind}_{metric}": ROWS}
        assert f"search index {kind} for {metric}," in explain(graph)
        assert recall(graph) >= FLOOR


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nearest_on_each_storage_layout_has_the_exact_rows_and_the_recall(
    layout: str, tmp_path: Path
) -> None:
    with og.init(tmp_path / "g", schema=SCHEMA, durability="os", upkeep="off") as graph:
        LAYOUTS[layout](graph)
        assert recall(graph) >= FLOOR
        found = [search(graph, vector, options=", exact: true") for vector in queries(4)]
        assert [{row["name"] for row in rows} for rows in found] == _expected(4)


def _expected(count: int) -> list[set[str]]:
    """Return the names that an exact search finds, computed from the documents."""
    import numpy as np

    rows = documents()
    known = rows.filter(rows["v"].is_valid())
    vectors = np.array(known["v"].to_pylist())
    names = known["name"].to_pylist()
    return [
        {names[place] for place in np.argsort(((vectors - vector) ** 2).sum(axis=1))[:10]}
        for vector in queries(count)
    ]


def test_nearest_without_a_cache_finds_the_rows_through_the_index(stored: Path) -> None:
    with og.open(stored, mode="r", cache_bytes=0) as graph:
        assert explain(graph).splitlines()[0] == INDEXED
        assert recall(graph, count=5) >= FLOOR


def test_nearest_through_the_index_does_not_load_the_vectors(stored: Path) -> None:
    with og.open(stored, mode="r") as graph:
        for vector in queries(8):
            search(graph, vector)
        cached = graph._reader.stats().nbytes
    assert cached < ROWS * DIMENSION * 4


def test_fusion_searches_the_index_to_its_depth_whatever_the_limit(read_only: og.LocalGraph) -> None:
    def fused(option: str, limit: int) -> str:
        call = f'rrf(nearest($d.v, $q{option}), bm25($d.name, "d7 d77 d777 d7777"), depth: 200)'
        clauses = f"match {{ $d: Doc }} return {{ $d.name as name }} order {{ {call} }} limit {limit}"
        return f"query fused($q: Vector({DIMENSION})) {{ {clauses} }}"

    params = {"q": NEAR}
    plan = read_only.explain(fused("", 10), params)
    assert "fuse the best 200 of each ranking" in plan
    assert "search index ivf_rq for l2, nprobes 20, refine 2: more than 10,000 candidates" in plan
    exact = [row["name"] for row in read_only.query(fused(", exact: true", 100), params).rows()]
    found = [row["name"] for row in read_only.query(fused("", 100), params).rows()]
    assert len(set(exact) & set(found)) >= FLOOR * len(exact)
    assert {"d7", "d77", "d777", "d7777"} <= set(found)
    assert [row["name"] for row in read_only.query(fused("", 10), params).rows()] == found[:10]


# --- rows of later commits ---------------------------------------------------------------------------------


def test_nearest_after_an_insert_finds_the_new_row(graph: og.LocalGraph) -> None:
    for number in range(3):
        insert(graph, f"new{number}", NEAR)
        assert explain(graph).splitlines() == [
            INDEXED,
            f"compare exactly {number + 1:,} {'row' if number == 0 else 'rows'} without an index (0.0 %)",
        ]
        found = search(graph, NEAR, limit=number + 1)
        assert [row["name"] for row in found] == [f"new{place}" for place in range(number + 1)]
        assert found[0]["far"] < 1e-9


def test_nearest_after_a_load_finds_the_new_rows(graph: og.LocalGraph) -> None:
    graph.load({"Doc": documents(ROWS, 3_000)}, "append")
    assert "compare exactly 3,000 rows without an index (20.0 %)" in explain(graph)
    assert recall(graph) >= FLOOR


def test_nearest_after_a_delete_does_not_find_the_deleted_rows(graph: og.LocalGraph) -> None:
    before = search(graph, NEAR, limit=5)
    for row in before[:3]:
        graph.mutate(f'query gone() {{ delete Doc where name = "{row["name"]}" }}')
    after = search(graph, NEAR, limit=5)
    assert not {row["name"] for row in before[:3]} & {row["name"] for row in after}
    assert [row["name"] for row in before[3:]] == [row["name"] for row in after[:2]]
    assert recall(graph, count=5) >= FLOOR


def test_nearest_after_an_update_compares_the_new_vector(graph: og.LocalGraph) -> None:
    nearest, *others = search(graph, NEAR, limit=5)
    far = [100.0] * DIMENSION
    graph.mutate(
        f"query move($v: Vector({DIMENSION})) {{ update Doc set {{ v: $v }}"
        f' where name = "{nearest["name"]}" }}',
        {"v": far},
    )
    assert [row["name"] for row in search(graph, NEAR, limit=4)] == [row["name"] for row in others]
    assert search(graph, far, limit=1)[0]["name"] == nearest["name"]


@pytest.mark.parametrize("match", ["$d: Doc", "$d: Doc $d.part < 700", "$d: Doc $d.part < 20"])
def test_exact_search_without_a_cache_has_the_rows_and_distances_of_one_with_a_cache(
    graph: og.LocalGraph, match: str
) -> None:
    for row in search(graph, NEAR, limit=30):
        graph.mutate(f'query gone() {{ delete Doc where name = "{row["name"]}" }}')
    insert(graph, "new", NEAR)
    graph.load({"Doc": documents(ROWS, 5_000)}, "append")
    graph.mutate(f'query gone() {{ delete Doc where name = "d{ROWS + 3}" }}')
    exact = [search(graph, vector, match, ", exact: true", limit=30) for vector in [NEAR, *queries(2)]]
    with og.open(graph.uri, mode="r", cache_bytes=0) as other:
        found = [search(other, vector, match, ", exact: true", limit=30) for vector in [NEAR, *queries(2)]]
    assert found == exact
    assert [len(rows) for rows in found] == [30] * 3


def test_nearest_on_branches_and_earlier_states_has_the_rows_of_each(graph: og.LocalGraph) -> None:
    start = graph.commits()[0].id
    best = search(graph, NEAR, limit=1)[0]["name"]
    graph.branches.create("trial")
    insert(graph, "trial", NEAR, branch="trial")
    graph.mutate(f'query gone() {{ delete Doc where name = "{best}" }}')
    insert(graph, "main", NEAR)
    assert {row["name"] for row in search(graph, NEAR, limit=2)} >= {"main"}
    assert [row["name"] for row in search(graph, NEAR, limit=2, branch="trial")] == ["trial", best]
    assert search(graph, NEAR, limit=1, at=start)[0]["name"] == best
    graph.branches.merge("trial")
    assert [row["name"] for row in search(graph, NEAR, limit=2)] == ["main", "trial"]
    assert best not in {row["name"] for row in search(graph, NEAR, limit=50)}
    assert recall(graph, count=5) >= FLOOR
    assert "search index" in explain(graph)


# --- filters and patterns ----------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [1, 20, 500, 900])
def test_nearest_with_a_filter_ranks_the_rows_that_pass_it(read_only: og.LocalGraph, part: int) -> None:
    match = f"$d: Doc $d.part < {part}"
    assert recall(read_only, match, count=6) >= FLOOR
    assert len(search(read_only, NEAR, match)) == 10


def test_nearest_with_a_filter_far_from_the_query_returns_all_rows_of_the_limit(
    read_only: og.LocalGraph,
) -> None:
    # Nearly all rows are candidates, but none of those that are near.
    match, vector = "$d: Doc $d.cluster != 7", [float(item) for item in centers()[7]]
    assert ROWS - ROWS // CLUSTERS > MAX_EXACT_ROWS
    for limit in (10, 40):
        found = search(read_only, vector, match, limit=limit)
        exact = search(read_only, vector, match, ", exact: true", limit=limit)
        assert len(found) == limit
        assert len({row["name"] for row in found} & {row["name"] for row in exact}) >= 0.9 * limit


def test_nearest_with_a_pattern_ranks_the_rows_that_it_matches(graph: og.LocalGraph) -> None:
    best = search(graph, NEAR, limit=1)[0]["name"]
    graph.load({"Tag": [{"name": "many"}, {"name": "few"}]})
    many = [{"from": "many", "to": f"d{number}"} for number in range(ROWS) if number % 20]
    graph.load({"Tagged": [*many, {"from": "few", "to": best}, {"from": "few", "to": "d50"}]})
    pattern = '$t: Tag {{ name: "{}" }} $t tagged $d'
    assert recall(graph, pattern.format("many"), count=6) >= FLOOR
    assert {row["name"] for row in search(graph, NEAR, pattern.format("few"))} == {best, "d50"}
    # Every tag of a document is a row.
    rows = search(graph, NEAR, "$t: Tag $t tagged $d", limit=30)
    exact = search(graph, NEAR, "$t: Tag $t tagged $d", ", exact: true", limit=30)
    assert rows == exact
    assert not search(graph, NEAR, "$d: Doc not { $t: Tag $t tagged $d } $d.part = 1")


def test_nearest_with_a_limit_beyond_the_vectors_returns_every_row_with_a_vector(
    read_only: og.LocalGraph,
) -> None:
    assert len(search(read_only, NEAR, limit=ROWS)) == ROWS - ROWS // 100
    assert search(read_only, NEAR, limit=0) == []
    assert len(search(read_only, NEAR, "$d: Doc $d.part >= 99 $d.part <= 109")) == 10


# --- options -----------------------------------------------------------------------------------------------


def test_explain_of_a_search_names_the_path_and_the_reason(read_only: og.LocalGraph) -> None:
    assert explain(read_only, options=", exact: true") == "search exactly: the option `exact`"
    assert "nprobes 3, refine 9" in explain(read_only, options=", nprobes: 3, refine: 9")
    assert explain(read_only, fn="cosine") == "search exactly: the index is for the metric l2"
    assert explain(read_only, '$d: Doc { name: "d1" }') == "search exactly: at most 10,000 candidates"
    ordered = read_only.explain(
        f"query q($q: Vector({DIMENSION})) {{ match {{ $d: Doc }} return {{ $d.name }}"
        " order { $d.part, nearest($d.v, $q) } limit 3 }",
        {"q": NEAR},
    )
    assert "search exactly: all rows are ranked" in ordered


def test_nearest_with_few_probes_searches_less_of_the_index(read_only: og.LocalGraph) -> None:
    options = ", nprobes: $n, refine: $n"
    call = f"nearest($d.v, $q{options})"
    query = (
        f"query near($q: Vector({DIMENSION}), $n: I32?) {{ match {{ $d: Doc }}"
        f" return {{ $d.name as name, {call} as far }} order {{ {call} }} limit 10 }}"
    )
    assert len(read_only.query(query, {"q": NEAR, "n": 1}).rows()) == 10
    assert read_only.query(query, {"q": NEAR}).rows() == search(read_only, NEAR)
    with pytest.raises(InvalidInput, match="`nprobes` must be a positive integer, got 0"):
        read_only.query(query, {"q": NEAR, "n": 0})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (", probes: 3", "unknown option `probes` of `nearest`"),
        (", refine: 0", "`refine` must be a positive integer"),
        (', nprobes: "x"', "`nprobes` must be a positive integer"),
        (", exact: 1", "`exact` must be true or false"),
        (", exact: true, exact: true", "option `exact` is given twice"),
    ],
)
def test_nearest_with_an_invalid_option_is_a_type_error(
    read_only: og.LocalGraph, options: str, message: str
) -> None:
    with pytest.raises(LanguageError, match=message):
        search(read_only, NEAR, options=options)


def test_nearest_with_an_unsearchable_query_vector_is_exact(read_only: og.LocalGraph) -> None:
    for vector in ([3e38] * DIMENSION, [0.0] * DIMENSION):
        assert search(read_only, vector) == search(read_only, vector, options=", exact: true")


# --- the life of an index ----------------------------------------------------------------------------------


def test_optimize_of_a_small_table_builds_no_vector_index() -> None:
    with og.init("memory://small-vectors", schema=SCHEMA) as graph:
        graph.load({"Doc": documents(0, 400)}, "append")
        done = next(item for item in graph.optimize().datasets if item.type_key == "node:Doc")
        assert [name for name, _ in done.pending_indexes] == ["v"]
        assert vector_indexes(graph) == {}
        assert explain(graph) == "search exactly: at most 10,000 candidates"


def test_optimize_of_a_table_with_few_vectors_reports_the_index_as_pending() -> None:
    with og.init("memory://few-vectors", schema=SCHEMA) as graph:
        rows = documents().drop_columns(["v"])
        graph.load({"Doc": rows}, "append")
        done = next(item for item in graph.optimize().datasets if item.type_key == "node:Doc")
        assert dict(done.pending_indexes)["v"].startswith("fewer than 256 rows have a vector")
        assert "id" in done.indexes
        insert(graph, "only", NEAR)
        assert [row["name"] for row in search(graph, NEAR)] == ["only"]


def test_optimize_extends_the_index_by_a_segment_and_merges_small_ones(graph: og.LocalGraph) -> None:
    assert num_segments(graph) == 1
    graph.load({"Doc": documents(ROWS, 1_000)}, "append")
    graph.optimize()
    # The compaction has moved all rows of this small table to one fragment, and the segment with them.
    assert vector_indexes(graph) == {"v_7_ivf_rq_l2": ROWS + 1_000}
    assert num_segments(graph) == 1
    assert recall(graph, count=5) >= FLOOR
    assert graph.optimize().commit is None


def test_optimize_after_a_change_of_the_metric_replaces_the_index(graph: og.LocalGraph) -> None:
    graph.schema.apply(SCHEMA.replace("@index", "@index(kind: ivf_pq, metric: cosine)"))
    assert explain(graph) == "search exactly: the index is for the metric l2"
    exact = search(graph, NEAR, options=", exact: true")
    assert search(graph, NEAR) == exact
    assert recall(graph, fn="l2", count=5) >= FLOOR
    graph.optimize()
    assert vector_indexes(graph) == {"v_7_ivf_pq_cosine": ROWS}
    assert "search index ivf_pq for cosine" in explain(graph)
    assert recall(graph, count=5) >= FLOOR


def test_optimize_after_the_property_was_dropped_removes_the_index(graph: og.LocalGraph) -> None:
    graph.schema.apply(SCHEMA.replace("cluster: I32", 'bunch: I32 @rename_from("cluster")'))
    assert explain(graph).splitlines()[0] == INDEXED
    without = SCHEMA.replace("cluster: I32", "bunch: I32").replace("v: Vector(16)? @index", "")
    graph.schema.apply(without, allow_data_loss=True)
    graph.optimize()
    snapshot = graph.snapshot()
    from omnigraph.store.tables.table_indexes import list_indexes

    assert not [
        item for item in list_indexes(snapshot.tables, snapshot.pin("node:Doc")) if "ivf" in item.name
    ]


def test_nearest_after_garbage_collection_uses_the_index(graph: og.LocalGraph) -> None:
    old = {item.name for item in Path(graph.uri).glob("nodes/*/_indices/*")}
    graph.load({"Doc": documents(ROWS, 5_000)}, "append")
    graph.optimize()
    graph.cleanup(keep=1, confirm=True, grace=timedelta(0))
    new = {item.name for item in Path(graph.uri).glob("nodes/*/_indices/*")}
    assert not old & new
    assert not graph.verify().damage
    with og.open(graph.uri, mode="r") as other:
        assert explain(other).splitlines()[0] == INDEXED
        assert recall(other, count=5) >= FLOOR


def test_nearest_with_a_damaged_index_is_exact_until_repair_builds_it_again(
    graph: og.LocalGraph, caplog: pytest.LogCaptureFixture
) -> None:
    expected = [search(graph, vector, options=", exact: true") for vector in queries(3)]
    for file in Path(graph.uri).glob("nodes/*/_indices/*/*"):
        if file.name in ("index.idx", "auxiliary.idx"):
            delete(file)
    with caplog.at_level(logging.WARNING), og.open(graph.uri, upkeep="off") as other:
        assert [search(other, vector) for vector in queries(3)] == expected
        assert "is damaged" in caplog.text
        assert explain(other) == "search exactly: an index of the table is damaged"
        other.repair(confirm=True)
    with og.open(graph.uri, mode="r") as repaired:
        assert explain(repaired).splitlines()[0] == INDEXED
        assert recall(repaired, count=5) >= FLOOR


def test_repair_of_a_damaged_index_of_too_few_vectors_removes_it(graph: og.LocalGraph) -> None:
    graph.mutate("query few() { delete Doc where part >= 5 }")
    for file in Path(graph.uri).glob("nodes/*/_indices/*/index.idx"):
        delete(file)
    with og.open(graph.uri, upkeep="off") as other:
        actions = {row["type_key"]: row["action"] for row in other.repair(confirm=True).datasets}
        assert actions["node:Doc"] == "rebuilt"
        assert other.verify().ok
        assert vector_indexes(other) == {}
        assert len(search(other, queries(1)[0])) == 10


def test_backup_of_a_graph_with_a_vector_index_is_searched_through_it(
    graph: og.LocalGraph, tmp_path: Path
) -> None:
    graph.backup(tmp_path / "copy")
    with og.open(tmp_path / "copy", mode="r") as copy:
        assert vector_indexes(copy) == {"v_7_ivf_rq_l2": ROWS}
        assert explain(copy).splitlines()[0] == INDEXED
        assert search(copy, NEAR) == search(graph, NEAR)


def test_exact_search_reads_no_more_at_a_time_than_its_memory_limit(stored: Path) -> None:
    with og.open(stored, mode="r", cache_bytes=0) as graph:
        found = graph.query(text(options=", exact: true"), {"q": NEAR}, max_bytes=6 << 20).rows()
        assert found == search(graph, NEAR, options=", exact: true")
        with pytest.raises(ResourceLimit):
            graph.query(text(options=", exact: true"), {"q": NEAR}, max_bytes=1 << 20)
