"""Full-text search through the stored index: the rows and scores of an index in memory, to the last bit."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.memory.cached_table import CachedTable
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.lang.schema import SIMPLE_TEXT, TextAnalysis
from omnigraph.search.analyzer import Analyzer
from omnigraph.search.inverted import segment_building
from omnigraph.search.inverted.inverted_texts import invert_texts
from omnigraph.search.text_scoring import count_phrase
from omnigraph.search.text_search import TextField
from tests.differential import naive_text
from tests.maintain.damage import delete, flip_bit, truncate
from tests.search.text_graphs import (
    FEW_QUERIES,
    KEY,
    LAYOUTS,
    QUERIES,
    ROWS,
    SCHEMA,
    Answers,
    answers,
    document,
    documents,
    explain,
    segment_files,
    segments_of,
    small_indexes,
    text_indexes_of,
)
from tests.support.places import fresh_memory

INDEXED = ["search words of $d.body: stored index of 1 segment", "analyze 0 rows without an index (0.0 %)"]
FILES = ("index", "positions", "postings", "sizes", "terms")


@pytest.fixture(autouse=True)
def index_small_tables() -> Iterator[None]:
    with small_indexes():
        yield


@pytest.fixture(scope="module")
def expected() -> Answers:
    """The answers of a graph in memory, which has no stored index."""
    with og.init(fresh_memory(), schema=SCHEMA) as graph:
        graph.load({"Doc": documents()}, "append")
        return answers(graph)


@pytest.fixture(scope="module")
def few() -> Answers:
    """Some of the expected answers."""
    with og.init(fresh_memory(), schema=SCHEMA) as graph:
        graph.load({"Doc": documents()}, "append")
        return answers(graph, FEW_QUERIES)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "g"
    with small_indexes(), og.init(path, schema=SCHEMA, durability="os", upkeep="off") as graph:
        LAYOUTS["indexed"](graph)
    return path


@pytest.fixture
def graph(stored: Path, tmp_path: Path) -> Iterator[og.LocalGraph]:
    shutil.copytree(stored, tmp_path / "g")
    with og.open(tmp_path / "g", durability="os", upkeep="off") as graph:
        yield graph


def in_memory(graph: og.LocalGraph, queries: Sequence[str] = QUERIES, **where: Any) -> Answers:
    """Return the answers of a graph in memory with the same documents."""
    rows = graph.query(
        "query all() { match { $d: Doc } return { $d.name as name, $d.part as part, $d.body as body,"
        " $d.title as title } }",
        **where,
    ).rows()
    with og.init(fresh_memory(), schema=SCHEMA) as copy:
        copy.load({"Doc": rows}, "append")
        return answers(copy, queries)


# --- results -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_search_on_each_storage_layout_equals_an_index_in_memory(
    layout: str, expected: Answers, tmp_path: Path
) -> None:
    with og.init(tmp_path / "g", schema=SCHEMA, durability="os", upkeep="off") as graph:
        LAYOUTS[layout](graph)
        assert bool(segments_of(graph, "body")) == (layout not in ("one fragment", "many fragments"))
        assert answers(graph) == expected


def test_search_through_the_index_equals_the_naive_evaluator(tmp_path: Path) -> None:
    # The naive evaluator knows no runs without spaces, and no stop words in phrases.
    left_out = re.compile("[\u3000-\u9fff]+|the|of")
    rows = [{**row, "body": left_out.sub("", row["body"] or "")} for row in documents(0, 16)]
    with og.init(tmp_path / "g", schema=SCHEMA, durability="os", upkeep="off") as graph:
        graph.load({"Doc": rows}, "append")
        graph.optimize(engine="local")
        assert text_indexes_of(graph)["body"] == len(rows)
        analysis = graph.snapshot().catalog.schema.nodes[0].by_name["body"].text_analysis
        queries = ["graph", "(index OR vector) AND search^2", "gra* NOT graphs", '"red wine"', "NOT commit"]
        found = answers(graph, queries, ["$d.body"])
    column = [row["body"] for row in rows]
    for query in queries:
        tree = naive_text.parse(query)
        matching = {row["name"] for row in rows if naive_text.matches_query([row["body"]], tree, [analysis])}
        assert {row["name"] for row in found[f"search $d.body {query}"]} == matching, query
        scores = {
            row["name"]: naive_text.bm25([row["body"]], query, [column], [(analysis, 1.0)]) for row in rows
        }
        ranked = found[f"bm25 $d.body {query}"]
        assert len(ranked) == sum(score != 0 for score in scores.values()), query
        assert [row["score"] for row in ranked] == pytest.approx([scores[row["name"]] for row in ranked])


def test_search_without_a_cache_finds_the_rows_through_the_index(stored: Path, expected: Answers) -> None:
    with og.open(stored, mode="r", cache_bytes=0) as graph:
        assert explain(graph) == INDEXED
        assert answers(graph) == expected


def test_search_through_the_index_loads_neither_texts_nor_words(stored: Path) -> None:
    with og.open(stored, mode="r") as graph:
        table = CachedTable(graph.snapshot(), KEY, Cache(1 << 24))
        analysis = graph.snapshot().catalog.schema.nodes[0].by_name["body"].text_analysis
        field = TextField(table, "body", analysis)
        assert len(field.index.occurrences("graph").rows) > 10
        assert len(field.index.memory.index) == 0
        assert not table.is_cached("body")


def test_phrase_with_stored_positions_reads_no_text(
    stored: Path, expected: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def count(text: str, *_: object) -> int:
        read.append(text)
        return 0

    monkeypatch.setattr("omnigraph.search.text_scoring.count_phrase", count)
    result = "return { $d.name as name } order { $d.name }"
    query = f"query q($q: String) {{ match {{ $d: Doc search(FIELD, $q) }} {result} }}"
    with og.open(stored, mode="r") as graph:
        rows = graph.query(query.replace("FIELD", "$d.body"), {"q": '"red wine"'}).rows()
        assert rows == expected['search $d.body "red wine"']
        assert rows
        assert not read
        graph.query(query.replace("FIELD", "$d.title"), {"q": '"red wine"'})
        assert read


# --- rows of later commits -----------------------------------------------------------------------------------


def test_search_after_writes_finds_the_rows_of_the_commit(graph: og.LocalGraph) -> None:
    graph.mutate(
        'query add() { insert Doc { name: "new", part: 1, body: "graph of zyzzyva", title: "red" } }'
    )
    found = graph.query('query q() { match { $d: Doc search($d.body, "zyzzyva") } return { $d.name as n } }')
    assert found.rows() == [{"n": "new"}]
    graph.mutate('query change() { update Doc set { body: "graph wine" } where name = "d0010" }')
    graph.mutate("query gone() { delete Doc where part = 20 }")
    assert explain(graph)[1] == "analyze 2 rows without an index (0.7 %)"
    assert answers(graph) == in_memory(graph)
    with og.open(graph.uri, mode="r") as cold:
        assert answers(cold) == in_memory(graph)


def test_search_on_branches_and_earlier_commits_finds_the_rows_of_each(
    graph: og.LocalGraph, few: Answers
) -> None:
    before = graph.snapshot().commit_id
    graph.branches.create("work")
    graph.load({"Doc": documents(ROWS, 40)}, "append", branch="work")
    graph.optimize(branch="work", engine="local")
    graph.mutate('query gone() { delete Doc where name = "d0007" }')
    assert answers(graph, FEW_QUERIES, branch="work") == in_memory(graph, FEW_QUERIES, branch="work")
    assert answers(graph, FEW_QUERIES) == in_memory(graph, FEW_QUERIES)
    graph.branches.merge("work")
    assert answers(graph, FEW_QUERIES) == in_memory(graph, FEW_QUERIES)
    assert answers(graph, FEW_QUERIES, at=before) == few
    graph.optimize(engine="local")
    assert answers(graph, FEW_QUERIES) == in_memory(graph, FEW_QUERIES)


# --- the life of an index ------------------------------------------------------------------------------------


def test_optimize_extends_the_index_and_merges_small_segments(graph: og.LocalGraph) -> None:
    for step in range(3):
        graph.load({"Doc": documents(ROWS + 20 * step, 20)}, "append")
        graph.optimize(engine="local")
        assert text_indexes_of(graph) == {"body": ROWS + 20 * (step + 1), "title": ROWS + 20 * (step + 1)}
    assert len(segments_of(graph, "body")) == 1
    assert answers(graph, FEW_QUERIES) == in_memory(graph, FEW_QUERIES)


def test_search_through_several_segments_equals_an_index_in_memory(
    graph: og.LocalGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.maintain.compaction_policy.SMALL_ROWS", 1)
    graph.load({"Doc": documents(ROWS, 50)}, "append")
    graph.optimize(engine="local")
    assert len(segments_of(graph, "body")) == 2
    assert explain(graph)[0] == "search words of $d.body: stored index of 2 segments"
    graph.mutate("query gone() { delete Doc where part = 3 }")
    assert answers(graph, FEW_QUERIES) == in_memory(graph, FEW_QUERIES)


def test_schema_change_of_the_analysis_stops_the_use_of_the_index(graph: og.LocalGraph) -> None:
    graph.schema.apply(SCHEMA.replace("with_position: true", "stem: false"))
    assert explain(graph)[0] == "search words of $d.body: the property has no stored index of this analysis"
    query = 'query q() { match { $d: Doc search($d.body, "databases") } return { $d.name } }'
    unstemmed = len(graph.query(query).rows())
    old = segments_of(graph, "body")
    graph.optimize(engine="local")
    assert {item.handle.uuid for item in old}.isdisjoint(
        item.handle.uuid for item in segments_of(graph, "body")
    )
    assert explain(graph) == INDEXED
    assert len(graph.query(query).rows()) == unstemmed


def test_optimize_after_the_property_was_dropped_removes_the_index(graph: og.LocalGraph) -> None:
    graph.schema.apply(SCHEMA.replace("    title: String? @text(simple)\n", ""), allow_data_loss=True)
    graph.optimize(engine="local")
    assert text_indexes_of(graph) == {"body": ROWS}


def test_optimize_of_a_small_table_builds_no_text_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.maintain.text_indexes.MIN_TABLE_ROWS", ROWS + 1)
    with og.init(tmp_path / "g", schema=SCHEMA, durability="os", upkeep="off") as graph:
        LAYOUTS["indexed"](graph)
        assert text_indexes_of(graph) == {}
        graph.load({"Doc": documents(ROWS, 1)}, "append")
        graph.optimize(engine="local")
        assert text_indexes_of(graph) == {"body": ROWS + 1, "title": ROWS + 1}


def test_search_after_garbage_collection_uses_the_index(graph: og.LocalGraph) -> None:
    old = {item.name for item in Path(graph.uri).glob("nodes/*/_indices/*")}
    graph.load({"Doc": documents(ROWS, ROWS)}, "append")
    graph.optimize(engine="local")
    graph.cleanup(keep=1, confirm=True, grace=timedelta(0))
    assert not old & {item.name for item in Path(graph.uri).glob("nodes/*/_indices/*")}
    assert not graph.verify().damage
    with og.open(graph.uri, mode="r") as other:
        assert explain(other) == INDEXED
        assert answers(other, FEW_QUERIES) == in_memory(graph, FEW_QUERIES)


def test_backup_of_a_graph_with_a_text_index_is_searched_through_it(
    graph: og.LocalGraph, few: Answers, tmp_path: Path
) -> None:
    graph.backup(tmp_path / "copy")
    with og.open(tmp_path / "copy", mode="r") as copy:
        assert explain(copy) == INDEXED
        assert answers(copy, FEW_QUERIES) == few


def test_filter_on_a_text_property_does_not_use_the_text_index(graph: og.LocalGraph) -> None:
    text = document(12)["title"]
    query = f'query q() {{ match {{ $d: Doc {{ title: "{text}" }} }} return {{ $d.name as name }} }}'
    rows = graph.query(query).rows()
    assert {"name": "d0012"} in rows
    assert "index: none" in graph.explain(query)


# --- damage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [delete, truncate, flip_bit])
@pytest.mark.parametrize("file", FILES)
def test_search_with_a_damaged_index_file_finds_the_rows_until_repair_builds_it_again(
    graph: og.LocalGraph,
    few: Answers,
    file: str,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    [damaged] = [item for item in segment_files(graph, "body") if item.stem == file]
    damage(damaged)
    with caplog.at_level(logging.WARNING), og.open(graph.uri, upkeep="off") as other:
        assert answers(other, FEW_QUERIES) == few
        assert (
            any(str(item.file).endswith(f"/{file}.lance") for item in other.verify().damage)
            or damage is not flip_bit
        )
        other.repair(confirm=True)
    with og.open(graph.uri, mode="r") as repaired:
        assert explain(repaired) == INDEXED
        assert repaired.verify().ok
        assert answers(repaired, FEW_QUERIES) == few


def test_search_warns_once_of_a_missing_index_file(
    graph: og.LocalGraph, caplog: pytest.LogCaptureFixture
) -> None:
    delete(next(item for item in segment_files(graph, "body") if item.stem == "postings"))
    with caplog.at_level(logging.WARNING), og.open(graph.uri, mode="r") as other:
        for _ in range(2):
            other.query('query q() { match { $d: Doc search($d.body, "graph") } return { $d.name } }')
        assert explain(other)[0] == "search words of $d.body: an index of the table is damaged"
    assert caplog.text.count("is damaged") == 1


# --- segments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("analysis", [SIMPLE_TEXT, TextAnalysis("english", ("the", "of"), ascii_fold=True)])
def test_positions_of_inverted_texts_count_phrases_as_the_texts_do(analysis: TextAnalysis) -> None:
    from omnigraph.search.text_query import Phrase

    analyzer = Analyzer(analysis)
    texts = [row["body"] or "" for row in documents(0, 60)]
    found = invert_texts(pa.array(texts, pa.large_string()), analyzer, with_positions=True)
    assert found.positions is not None
    place = 0
    for number, term in enumerate(found.terms.to_pylist()):
        for row, count in zip(
            found.postings(number),
            found.counts[found.bounds[number] : found.bounds[number + 1]],
            strict=True,
        ):
            wanted = [at for token, at in analyzer.placed_tokens(texts[row]) if token == term]
            assert found.positions[place : place + count].tolist() == wanted
            assert count_phrase(texts[row], Phrase(((term, 0),)), analyzer) == count
            place += int(count)


def test_merged_slices_equal_the_terms_of_all_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_building, "_RUN_POSTINGS", 7)
    analyzer = Analyzer()
    texts = pa.array([row["body"] or "" for row in documents(0, 50)], pa.large_string())
    whole = invert_texts(texts, analyzer, with_positions=True)
    slices = [
        segment_building._Slice.of(texts.slice(start, 20), start, analyzer, with_positions=True)
        for start in range(0, 50, 20)
    ]
    runs = list(segment_building.merge_slices(slices, with_positions=True))
    assert len(runs) > 10
    assert [term for run in runs for term in run.terms.to_pylist()] == whole.terms.to_pylist()
    assert [int(item) for run in runs for item in run.places] == whole.places.tolist()
    assert [int(item) for run in runs for item in run.counts] == whole.counts.tolist()
    assert whole.positions is not None
    assert [int(item) for run in runs if run.positions is not None for item in run.positions] == list(
        whole.positions
    )


def test_text_index_of_another_tokenizer_is_not_used(
    graph: og.LocalGraph, monkeypatch: pytest.MonkeyPatch, few: Answers
) -> None:
    from omnigraph.search.inverted import indexed_columns

    indexed_columns._tokenizer.cache_clear()
    monkeypatch.setattr(indexed_columns, "_TOKENIZER_REVISION", 2)
    with og.open(graph.uri, durability="os", upkeep="off") as other:
        assert (
            explain(other)[0] == "search words of $d.body: the property has no stored index of this analysis"
        )
        assert answers(other, FEW_QUERIES) == few
        other.optimize(engine="local")
        assert explain(other) == INDEXED
    indexed_columns._tokenizer.cache_clear()
