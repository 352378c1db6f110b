"""`@text` declares how words become tokens: language, stop words, accents and n-grams."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import snowballstemmer

import omnigraph as og
from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.pg.format_schema import format_schema
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.lang.schema import LANGUAGES, TextAnalysis
from omnigraph.lang.stop_word_lists import STOP_WORD_LANGUAGES, stop_words
from omnigraph.search.analyzer import Analyzer

ENGLISH = TextAnalysis("english", stop_words("english"), ascii_fold=True)


def schema(annotation: str) -> str:
    return f"node Doc {{ name: String @key body: String? {annotation} }}"


def add(graph: og.Graph, texts: dict[str, str]) -> None:
    rows = " ".join(f'insert Doc {{ name: "{name}", body: "{text}" }}' for name, text in texts.items())
    graph.mutate(f"query add() {{ {rows} }}")


def found(graph: og.Graph, clause: str, **params: str) -> list[str]:
    declared = ", ".join(f"${name}: String" for name in params)
    query = f"query q({declared}) {{ match {{ $d: Doc {clause} }} return {{ $d.name as n }} order {{ n }} }}"
    return [row["n"] for row in graph.query(query, params).rows()]


@pytest.mark.parametrize(
    ("analysis", "text", "tokens"),
    [
        (ENGLISH, "The Graph's databases, indexed", ["graph", "s", "databas", "index"]),
        (ENGLISH, "Résumés and crème brûlée", ["resum", "creme", "brule"]),
        (ENGLISH, "東京 towers", ["東", "京", "東京", "tower"]),
        (
            TextAnalysis(ascii_fold=True),
            "Ångström Łódź œuvre smørrebrød ή",
            ["angstrom", "lodz", "oeuvre", "smorrebrod", "ή"],
        ),
        (TextAnalysis("german", ascii_fold=True), "die Häuser, das Haus", ["die", "haus", "das", "haus"]),
        (TextAnalysis("french"), "continuellement", ["continuel"]),
        (TextAnalysis(stop_words=("Le", "la")), "LE chat LA", ["chat"]),
        (TextAnalysis(ngram=3), "graph db", ["gra", "rap", "aph", "db"]),
        (TextAnalysis("english"), "x" * 65 + "ing", ["x" * 65 + "ing"]),
    ],
)
def test_tokens_follow_the_analysis(analysis: TextAnalysis, text: str, tokens: list[str]) -> None:
    analyzer = Analyzer(analysis)
    assert analyzer.tokens(text) == tokens
    assert [token for token, _ in analyzer.placed_tokens(text)] == tokens


def test_placed_tokens_count_stop_words_and_units() -> None:
    placed = list(Analyzer(ENGLISH).placed_tokens("state of the art 手机 x"))
    assert placed == [("state", 0), ("art", 3), ("手", 4), ("机", 5), ("手机", 4), ("x", 6)]


def test_every_language_has_a_stemmer() -> None:
    assert set(LANGUAGES) <= set(snowballstemmer.algorithms())
    for language in LANGUAGES:
        assert Analyzer(TextAnalysis(language)).tokens("a")


def test_stems_of_many_threads_equal_those_of_one() -> None:
    words = [
        f"{start}{middle}{end}"
        for start in "abcdef"
        for middle in ("lo", "tri")
        for end in ("ngs", "ed", "ing")
    ]
    expected = Analyzer(TextAnalysis("swedish")).tokens(" ".join(words))
    seen: list[list[str]] = []

    def work() -> None:
        stemmer = snowballstemmer.stemmer("swedish")
        seen.append([stemmer.stemWord(word) for word in words])
        seen.append(Analyzer(TextAnalysis("swedish")).tokens(" ".join(words)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [expected] * 8


def test_search_in_an_english_text_finds_other_forms_of_the_words(tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "g"), schema("@text"))
    add(
        graph,
        {"a": "Graph databases", "b": "the café is running", "c": "run to the cafés", "d": "nothing here"},
    )
    assert found(graph, 'search($d.body, "database")') == ["a"]
    assert found(graph, 'match_text($d.body, "CAFE")') == ["b", "c"]
    assert found(graph, 'search($d.body, "runs")') == ["b", "c"]
    assert found(graph, 'search($d.body, "the")') == []
    assert found(graph, 'fuzzy($d.body, "databse", 1)') == ["a"]
    assert found(graph, "search($d.body, $q)", q="nothings or the") == ["d"]
    ranked = 'query q() { match { $d: Doc } return { $d.name as n } order { bm25($d.body, "run cafe") } }'
    assert [row["n"] for row in graph.query(ranked).rows()] == ["b", "c"]
    # Rows that are newer than the index in memory have the same tokens.
    add(graph, {"e": "He databased it", "f": "a café"})
    assert found(graph, 'search($d.body, "database")') == ["a", "e"]


@pytest.mark.parametrize(
    "annotation", ["", "@text(simple)", "@text(stem: false, stop_words: false, ascii_fold: false)"]
)
def test_search_in_a_simple_text_compares_whole_words(tmp_path: Path, annotation: str) -> None:
    graph = og.init(str(tmp_path / "g"), schema(annotation))
    add(graph, {"a": "Graph databases", "b": "the café"})
    assert found(graph, 'search($d.body, "database cafe")') == []
    assert found(graph, 'search($d.body, "DATABASES")') == ["a"]
    assert found(graph, 'search($d.body, "The")') == ["b"]


def test_schema_apply_with_another_analysis_changes_results_and_no_row(tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "g"), schema(""))
    add(graph, {"a": "Graph databases"})
    assert found(graph, 'search($d.body, "database")') == []
    graph.branches.create("other")
    plan = graph.schema.plan(schema("@text"))
    assert [type(step).__name__ for step in plan.steps] == ["UpdatePropertyMetadata"]
    graph.schema.apply(schema("@text"))
    assert found(graph, 'search($d.body, "database")') == ["a"]
    assert (
        graph.query(
            'query q() { match { $d: Doc search($d.body, "database") } return { $d } }', branch="other"
        ).rows()
        == []
    )
    graph.schema.apply(schema("@text(simple)"))
    assert found(graph, 'search($d.body, "database")') == []


def test_explain_of_a_search_names_the_analysis(tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "g"), schema("@text"))
    query = 'query q() { match { $d: Doc search($d.body, "x") } return { $d.name } }'
    assert "text=english+stop_words+ascii_fold" in str(graph.explain(query))


def test_format_schema_with_text_options_keeps_them() -> None:
    text = format_schema(schema('@text(language: "german", stem: true, ngram: 3, stop_words: "der die")'))
    assert '@text(language: "german", stem: true, ngram: 3, stop_words: "der die")\n' in text
    assert format_schema(text) == text
    assert format_schema(schema("@text(simple)")).count("@text(simple)") == 1


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ("@text(language: klingon)", "language must be the name of a language, got klingon"),
        ("@text(stem: 3)", "stem must be true or false, got 3"),
        ("@text(ngram: 1)", "ngram must be an integer from 2 to 16, got 1"),
        ('@text(stop_words: " ")', "stop_words must be true, false or a string of words"),
        ("@text(language: tamil, stop_words: true)", "there is no list of stop words for tamil"),
        ("@text(stemm: true)", "has unknown option 'stemm'"),
        ("@text(stem: true, stem: true)", "declares 'stem' multiple times"),
        ("@text(english)", "takes `simple` or options"),
        ("@text @text", "declares @text multiple times"),
    ],
)
def test_schema_with_an_invalid_text_option_is_rejected(annotation: str, message: str) -> None:
    with pytest.raises(LanguageError, match=message):
        og.init("memory://", schema(annotation))


def test_schema_with_text_on_another_type_is_rejected() -> None:
    with pytest.raises(LanguageError, match=r"only supported on String properties, and Doc\.n is I32"):
        og.init("memory://", "node Doc { n: I32 @text }")
    with pytest.raises(LanguageError, match="not supported on edge properties"):
        og.init("memory://", "node A { n: I32 } edge E: A -> A { s: String @text }")


@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        ("german", "Der Graph ist über alle Häuser verteilt", ["graph", "haus", "verteilt"]),
        ("french", "Les bases de données sont là", ["bas", "don", "la"]),
        ("russian", "Не все базы данных были здесь", ["баз", "дан"]),
        ("tamil", "the graph", ["the", "graph"]),
    ],
)
def test_tokens_leave_out_the_stop_words_of_the_language(language: str, text: str, tokens: list[str]) -> None:
    node = load_schema(schema(f"@text(language: {language})")).nodes[0]
    prop = next(item for item in node.properties if item.name == "body")
    assert Analyzer(prop.text_analysis).tokens(text) == tokens


def test_stop_words_of_every_language_have_no_tokens() -> None:
    assert set(STOP_WORD_LANGUAGES) <= set(LANGUAGES)
    for language in STOP_WORD_LANGUAGES:
        words = stop_words(language)
        assert len(words) >= 30
        assert Analyzer(TextAnalysis(language, words)).tokens(" ".join(words)) == []


def test_tokens_leave_out_stop_words_before_stemming() -> None:
    assert Analyzer(TextAnalysis("english", ("running",))).tokens("Running runs") == ["run"]
