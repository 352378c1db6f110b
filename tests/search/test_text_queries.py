"""The query language of full-text search: operators, phrases, prefixes, boosts, several properties, snippets."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics

import pyarrow as pa
import pytest
import snowballstemmer

import omnigraph as og
from omnigraph.budget.deadline import time_limit
from omnigraph.errors import InvalidInput, ResourceLimit
from omnigraph.lang import ir
from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.stop_word_lists import stop_words
from omnigraph.lang.types import STRING
from omnigraph.search.analyzer import SIMPLE
from omnigraph.search.snippets import WORDS, Highlighter
from omnigraph.search.text_query import AnyOf, Leaf, Terms, parse_query
from omnigraph.search.text_scoring import TextEvaluation
from omnigraph.spark.engine.udfs import BatchField
from tests.support.places import fresh_memory

SCHEMA = """
node Doc {
  name: String @key
  title: String?
  body: String? @text
  parts: String? @text(ngram: 3, stop_words: false)
}
node Team { name: String @key }
edge By: Doc -> Team
"""
DOCS = [
    {"name": "a", "title": "Graph databases", "body": "A graph database stores the state of the art."},
    {
        "name": "b",
        "title": "Databases",
        "body": "The database of graphs: graph graph database",
        "parts": "hypergraph",
    },
    {"name": "c", "title": "Cafés", "body": "Grapes are no graph", "parts": "graphite pencil"},
    {"name": "d", "title": None, "body": None, "parts": "pen"},
    {"name": "e", "title": "東京タワー graph", "body": "state art", "parts": None},
]


@pytest.fixture(scope="module")
def graph() -> og.Graph:
    made = og.init(fresh_memory(), schema=SCHEMA)
    made.load({"Doc": DOCS})
    return made


def found(graph: og.Graph, query: str, fields: str = "$d.body") -> str:
    clause = f"$d: Doc search({fields}, $q)"
    read = f"query q($q: String) {{ match {{ {clause} }} return {{ $d.name as n }} order {{ n }} }}"
    return "".join(row["n"] for row in graph.query(read, {"q": query}).rows())


def ranked(graph: og.Graph, query: str, rank: str = "bm25($d.body, $q)") -> list[tuple[str, float]]:
    read = f"""query q($q: String) {{ match {{ $d: Doc }} return {{ $d.name as n, {rank} as s }}
        order {{ {rank} }} limit 99 }}"""
    return [(row["n"], row["s"]) for row in graph.query(read, {"q": query}).rows()]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("graph database", "abc"),
        ("graph AND database", "ab"),
        ("graph OR art", "abce"),
        ("graph NOT grape", "ab"),
        ("graph AND NOT grape", "ab"),
        ("NOT graph", "e"),
        ("NOT NOT grapes", "c"),
        ("art OR grapes AND graph", "ace"),
        ("(art OR grapes) AND graph", "ac"),
        ("art grapes AND graph NOT stores", "ce"),
        ('"graph database"', "ab"),
        ('"database graph"', ""),
        ('"databases of graphs"', "b"),
        ('"state of the art"', "a"),
        ('"state art"', "e"),
        ('"the"', ""),
        ("gra*", "abc"),
        ("grape*", "c"),
        ("databases*", "ab"),
        ("the AND grapes", "c"),
        ("NOT the", ""),
        ("and or not", ""),
        ("grapes^3 x", "c"),
        ("()", ""),
        ("c++ grapes!? -art", "ace"),
        ("gra-*", ""),
    ],
)
def test_search_with_operators_finds_the_rows(graph: og.Graph, query: str, names: str) -> None:
    assert found(graph, query) == names


@pytest.mark.parametrize(
    ("query", "names"),
    [("graph", "bc"), ("graph AND pencil", "c"), ("raphi", "c"), ('"ergr"', "b"), ("pe*", "bcd")],
)
def test_search_in_ngrams_finds_parts_of_words(graph: og.Graph, query: str, names: str) -> None:
    assert found(graph, query, "$d.parts") == names


def test_search_for_a_phrase_without_spaces_finds_it_inside_a_run(graph: og.Graph) -> None:
    assert found(graph, '"京タワー"', "$d.title") == "e"
    assert found(graph, '"京ワ"', "$d.title") == ""
    assert found(graph, "京* AND gra*", "$d.title") == "e"


def test_search_in_several_properties_finds_words_in_any_of_them(graph: og.Graph) -> None:
    assert found(graph, "cafés AND grapes", "[$d.title, $d.body]") == "c"
    assert found(graph, "graph AND NOT database*", "[$d.title, $d.body]") == "ce"
    # Where one text is null, the others decide; where all are null, nothing is known.
    assert found(graph, "NOT zebra", "[$d.title, $d.parts]") == "abcde"
    assert found(graph, "NOT zebra", "[$d.title, $d.body]") == "abce"


def test_search_for_the_text_of_a_property_has_no_operators(graph: og.Graph) -> None:
    graph.load({"Team": [{"name": '"graph AND (x'}, {"name": "NOT grapes"}]})
    read = """query q() { match { $d: Doc  $t: Team  search($d.body, $t.name) }
        return { $d.name as n, $t.name as t } order { n, t } }"""
    rows = [(row["n"], row["t"][:3]) for row in graph.query(read).rows()]
    assert rows == [("a", '"gr'), ("b", '"gr'), ("c", '"gr'), ("c", "NOT")]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ('a "b c', "character 3: the phrase is not closed"),
        ("a AND", "character 6: `AND` needs words behind it"),
        ("OR a", "character 1: `OR` needs words before it"),
        ("a AND OR b", "character 7: `AND` needs words behind it"),
        ("NOT", "character 4: `NOT` needs words behind it"),
        ("(a", "character 1: the parenthesis is not closed"),
        ("a) b", "character 2: `\\)` without `\\(`"),
        ("a^0", "character 2: a boost must be above 0 and at most 1000000, got 0"),
        ("(" * 65 + ")" * 65, "character 65: more than 64 parentheses inside each other"),
    ],
)
def test_search_with_a_malformed_query_reports_the_position(
    graph: og.Graph, query: str, message: str
) -> None:
    for rank in ("search($d.body, $q)", "bm25($d.body, $q)", "snippet($d.body, $q)"):
        with pytest.raises(InvalidInput, match=message):
            graph.query(
                f"query q($q: String) {{ match {{ $d: Doc }} return {{ {rank} as x }} }}", {"q": query}
            )


def test_query_of_plain_words_is_any_of_them() -> None:
    expected = AnyOf((Leaf((Terms(("to",)),)), Leaf((Terms(("be",)),))))
    assert parse_query("to, be", [SIMPLE]) == expected


# --- scores ----------------------------------------------------------------------------------------------


def test_bm25_of_a_boosted_word_multiplies_its_part(graph: og.Graph) -> None:
    plain, boosted = dict(ranked(graph, "grapes")), dict(ranked(graph, "grapes^2.5"))
    assert boosted["c"] == pytest.approx(2.5 * plain["c"], rel=1e-12)
    assert dict(ranked(graph, "(art grapes)^2 zebra")) == dict(ranked(graph, "art^2 OR grapes^2"))


def test_bm25_of_several_properties_adds_boosted_scores(graph: og.Graph) -> None:
    both = dict(ranked(graph, "graph databases", "bm25([$d.title ^ 3, $d.body], $q)"))
    title = dict(ranked(graph, "graph databases", "bm25($d.title, $q)"))
    body = dict(ranked(graph, "graph databases", "bm25($d.body, $q)"))
    assert both.keys() == title.keys() | body.keys()
    for name, score in both.items():
        assert score == pytest.approx(3 * title.get(name, 0) + body.get(name, 0), rel=1e-12)


def test_bm25_of_operators_ranks_only_matching_rows(graph: og.Graph) -> None:
    assert [name for name, _ in ranked(graph, "graph NOT grapes")] == ["b", "a"]
    assert [name for name, _ in ranked(graph, '"graph database" grapes')] == ["c", "a", "b"]
    assert ranked(graph, "NOT graph") == []
    assert ranked(graph, "gr*^2") == [("a", 2.0), ("b", 2.0), ("c", 2.0)]


def reference_scores(documents: dict[str, list[str]], query: list[str]) -> dict[str, float]:
    """BM25 as the literature has it, over lists of words."""
    counts = {name: Counter(words) for name, words in documents.items()}
    average = sum(map(len, documents.values())) / len(documents)
    scores: dict[str, float] = {}
    for term in set(query):
        holding = [name for name, found in counts.items() if found[term]]
        rarity = math.log(1 + (len(documents) - len(holding) + 0.5) / (len(holding) + 0.5))
        for name in holding:
            length = 1 - 0.75 + 0.75 * len(documents[name]) / average
            frequency = counts[name][term]
            scores[name] = scores.get(name, 0.0) + rarity * frequency * 2.2 / (frequency + 1.2 * length)
    return scores


@pytest.mark.parametrize("analysis", ["", "@text"])
def test_bm25_of_the_help_topics_of_python_equals_a_reference(analysis: str) -> None:
    graph = og.init(fresh_memory(), schema=f"node Topic {{ name: String @key  body: String {analysis} }}")
    graph.load({"Topic": [{"name": name, "body": text} for name, text in topics.items()]})
    stem = snowballstemmer.stemmer("english").stemWord

    def words(text: str) -> list[str]:
        found = re.findall(r"[^\W_]+", text.casefold())
        return [stem(word) for word in found if word not in stop_words("english")] if analysis else found

    documents = {name: words(text) for name, text in topics.items()}
    ask = """query q($q: String) { match { $t: Topic } return { $t.name as n, bm25($t.body, $q) as s }
        order { bm25($t.body, $q) } limit 10 }"""
    for query in (
        "exception handling",
        "the iterator of a list",
        "string formatting methods",
        "class attributes",
    ):
        expected = reference_scores(documents, words(query))
        best = sorted(expected, key=lambda name: (-expected[name], name))[:10]
        rows = graph.query(ask, {"q": query}).rows()
        assert [row["n"] for row in rows] == best
        assert [row["s"] for row in rows] == pytest.approx([expected[name] for name in best], rel=1e-12)


# --- snippets --------------------------------------------------------------------------------------------


def test_snippet_marks_the_words_of_the_query(graph: og.Graph) -> None:
    read = """query q($q: String) { match { $d: Doc } return { $d.name as n, snippet($d.body, $q) as s,
        snippet($d.title, "東京 cafés") } order { n } }"""
    rows = graph.query(read, {"q": "database* OR grape NOT state"}).rows()
    assert [row["s"] for row in rows] == [
        "A graph **database** stores the state of the art.",
        "The **database** of graphs: graph graph **database**",
        "**Grapes** are no graph",
        None,
        "state art",
    ]
    assert [row["snippet"] for row in rows] == [
        "Graph databases",
        "Databases",
        "**Cafés**",
        None,
        "**東京**タワー graph",
    ]


def test_snippet_of_a_long_text_shows_the_part_with_most_words() -> None:
    text = " ".join(["x red"] + ["filler"] * 50 + ["red,", "blue;"] + ["filler"] * 50)
    snippet = Highlighter.of("red blue", SIMPLE).snippet(text)
    assert snippet.startswith("…")
    assert snippet.endswith("**red**, **blue**…")
    assert len(snippet.replace("…", "").split()) == WORDS
    assert Highlighter.of("zebra", SIMPLE).snippet(text) == "x red" + " filler" * (WORDS - 2) + "…"
    assert Highlighter.of("a", SIMPLE).snippet("") == ""


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        (
            "match { $d: Doc search([$d.title ^ 2, $d.body], $q) } return { $d.name }",
            "`search` has no scores to boost",
        ),
        (
            "match { $d: Doc $e: Doc search([$d.title, $e.body], $q) } return { $d }",
            "must be properties of one variable",
        ),
        ("match { $d: Doc } return { bm25([$d.title ^ 0, $d.body], $q) as s }", "a boost must be above 0"),
        (
            "match { $d: Doc } return { fuse(bm25($d.body, $q) ^ -1, bm25($d.body, $q)) as s }",
            "a weight must be above 0",
        ),
        (
            "match { $d: Doc } return { $d } order { fuse(bm25($d.body, $q), bm25($d.body, $q)) }",
            "`fuse` ordering requires",
        ),
        ("match { $d: Doc } return { snippet($d.body, $d.title) as s }", "the query of `snippet` must be"),
        (
            "match { $d: Doc search($d.body, snippet($d.body, $q)) } return { $d }",
            "only allowed as a column of `return`",
        ),
        ("match { $d: Doc search([$d.body, $d.size], $q) } return { $d }", "has no property"),
    ],
)
def test_check_of_invalid_search_reports_the_rule(graph: og.Graph, clause: str, message: str) -> None:
    with pytest.raises(LanguageError, match=message):
        graph.query(f"query q($q: String) {{ {clause} }}", {"q": "x"})


# --- fusion ----------------------------------------------------------------------------------------------


def test_rrf_of_three_weighted_rankings_adds_their_parts(graph: og.Graph) -> None:
    parts = ["bm25($d.title, $q)", "bm25($d.body, $q)", 'bm25($d.parts, "graph")']
    weights = [1.0, 2.0, 0.5]
    call = f"rrf({parts[0]}, {parts[1]} ^ 2, {parts[2]} ^ 0.5, 7)"
    expected: dict[str, float] = {}
    for part, weight in zip(parts, weights, strict=True):
        for place, (name, _) in enumerate(ranked(graph, "graph database", part)):
            expected[name] = expected.get(name, 0) + weight / (7 + place + 1)
    assert dict(ranked(graph, "graph database", call)) == pytest.approx(expected, rel=1e-12)


def test_fuse_adds_weighted_scores_between_zero_and_one(graph: og.Graph) -> None:
    expected: dict[str, float] = {}
    for part, weight in (("bm25($d.title, $q)", 0.25), ("bm25($d.body, $q)", 3.0)):
        scores = dict(ranked(graph, "graph database", part))
        low, high = min(scores.values()), max(scores.values())
        for name, score in scores.items():
            expected[name] = expected.get(name, 0) + weight * (score - low) / (high - low)
    call = "fuse(bm25($d.title, $q) ^ 0.25, bm25($d.body, $q) ^ 3)"
    assert dict(ranked(graph, "graph database", call)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("fn", ["rrf", "fuse"])
def test_returned_fusion_does_not_depend_on_limit(graph: og.Graph, fn: str) -> None:
    read = f"""query q() {{ match {{ $d: Doc }}
        return {{ $d.name as n, {fn}(bm25($d.title, "graph"), bm25($d.body, "graph database")) as s }}
        order {{ n desc }}"""
    everything = graph.query(f"{read} }}").rows()
    assert len({row["s"] for row in everything}) > 2
    assert graph.query(f"{read} limit 3 }}").rows() == everything[:3]


@pytest.mark.parametrize("fn", ["rrf", "fuse"])
def test_fusion_considers_the_best_of_each_ranking_up_to_its_depth(graph: og.Graph, fn: str) -> None:
    best = [name for name, _ in ranked(graph, "graph", "bm25($d.body, $q)")]
    assert len(best) == 3
    for depth in (1, 2, 10_000):
        call = f"{fn}(bm25($d.body, $q), bm25($d.body, $q), depth: {depth})"
        assert [name for name, _ in ranked(graph, "graph", call)] == best[:depth]


@pytest.mark.parametrize("depth", ["0", "10001", "1.5", "true", "$d.name"])
def test_fusion_with_an_invalid_depth_is_refused(graph: og.Graph, depth: str) -> None:
    with pytest.raises(LanguageError, match=r"`depth` must be an integer from 1 to 10,000|expected"):
        ranked(graph, "graph", f"rrf(bm25($d.body, $q), bm25($d.body, $q), depth: {depth})")
    with pytest.raises(LanguageError, match="unknown option `dept` of `rrf`"):
        ranked(graph, "graph", "rrf(bm25($d.body, $q), bm25($d.body, $q), dept: 3)")


def test_fusion_depth_of_a_parameter_is_checked_when_the_query_runs(graph: og.Graph) -> None:
    call = "rrf(bm25($d.body, $q), bm25($d.body, $q), depth: $n)"
    clauses = f"match {{ $d: Doc }} return {{ $d.name as n }} order {{ {call} }} limit 9"
    query = f"query q($q: String, $n: I32) {{ {clauses} }}"
    assert len(graph.query(query, {"q": "graph", "n": 2}).rows()) == 2
    with pytest.raises(InvalidInput, match="`depth` must be an integer from 1 to 10,000, got 0"):
        graph.query(query, {"q": "graph", "n": 0})


# --- limits ----------------------------------------------------------------------------------------------


def test_search_for_phrases_and_snippets_checks_the_deadline() -> None:
    with time_limit(0), pytest.raises(ResourceLimit):
        Highlighter.of("a", SIMPLE).snippets(["a"])
    texts = pa.array(["red wine", "red"])
    field = BatchField.of(ir.TextField(ir.PropertyRef("d", "body", STRING)), texts)
    search = TextEvaluation(parse_query('"red wine"', [SIMPLE]), [field])
    with time_limit(0), pytest.raises(ResourceLimit):
        search.matches()
    assert search.matches().tolist() == [True, False]


def test_text_written_later_matches_phrases_at_once(tmp_path: Path) -> None:
    made = og.init(str(tmp_path / "g"), schema="node Doc { name: String @key  body: String? @text }")
    add = "query a($n: String, $b: String) { insert Doc { name: $n, body: $b } }"
    made.mutate(add, {"n": "a", "b": "red wines"})
    assert found(made, '"red wine"') == "a"
    made.mutate(add, {"n": "b", "b": "some red wine"})
    assert found(made, '"red wine"') == "ab"
    made.mutate(add, {"n": "a", "b": "wine, red"})
    assert found(made, '"red wine"') == "b"
    made.mutate('query d() { delete Doc where name = "b" }')
    assert found(made, '"red wine"') == ""
    assert found(made, "win*") == "a"
