"""Text search finds what a reader of the definitions would find, and scores it the same to the last bit."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.budget.deadline import time_limit
from omnigraph.errors import InvalidInput, ResourceLimit
from omnigraph.search import text_index as text_module
from omnigraph.search.analyzer import SIMPLE, Analyzer
from omnigraph.search.inverted import edit_distance, inverted_texts
from omnigraph.search.text_index import MAX_FUZZY_WORD, Mask, Ordinals, Scores, TextIndex
from omnigraph.search.text_query import plain_query
from omnigraph.search.text_scoring import TextEvaluation

# Few letters, so that texts share words and near words; and everything that is treated in a way of its own.
LETTERS = "aabbcABC1 ,-_'ée\u0301ßΣς½™ﬁＡ手机壳テ\u3099ก\u0e35서울\ufe0f\u0338\u200c\u0345"
TEXTS = st.text(st.sampled_from(LETTERS), max_size=14) | st.text(max_size=8)
COLUMNS = st.lists(st.none() | TEXTS, max_size=12)
QUERIES = st.text(st.sampled_from(LETTERS), max_size=8)
MARKS = {" ", *(chr(code) for code in range(0x300, 0x20000) if unicodedata.category(chr(code))[0] == "M")}
# How the names of characters begin whose scripts have no spaces between words.
UNSPACED = (
    *("CJK", "HANGZHOU", "IDEOGRAPHIC ITERATION", "IDEOGRAPHIC CLOSING", "IDEOGRAPHIC NUMBER"),
    *("HIRAGANA", "KATAKANA", "HENTAIGANA", "VERTICAL KANA", "VERTICAL IDEOGRAPHIC", "MASU"),
    *("HANGUL", "THAI", "LAO", "KHMER", "MYANMAR"),
)


def is_selector(char: str) -> bool:
    return "VARIATION SELECTOR" in unicodedata.name(char, "")


def runs(text: str) -> list[str]:
    """Runs of letters, numbers and marks, one character at a time."""
    found = [""]
    for char in text:
        if unicodedata.category(char)[0] not in "LNM":
            found.append("")
        elif not is_selector(char):
            found[-1] += char
    return [run for run in found if run]


def words(text: str) -> Iterator[tuple[bool, list[str]]]:
    """The words of a text as lists of characters with their marks, and whether neighbours are words too."""
    for run in runs(text):
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", run).casefold())
        for word in runs(folded):
            current: tuple[bool, list[str]] | None = None
            for char in word:
                if unicodedata.category(char)[0] == "M":
                    if current:
                        current[1][-1] += char
                    continue
                unspaced = unicodedata.name(char, "").startswith(UNSPACED)
                if current and current[0] == unspaced:
                    current[1].append(char)
                else:
                    if current:
                        yield current
                    current = (unspaced, [char])
            if current:
                yield current


def naive_tokens(text: str) -> list[str]:
    tokens: list[str] = []
    for unspaced, units in words(text):
        pairs = [units[n] + units[n + 1] for n in range(len(units) - 1)]
        tokens += units + pairs if unspaced else ["".join(units)]
    return tokens


def naive_terms(query: str) -> dict[str, bool]:
    """What a query asks for, and whether it may be edited."""
    terms: dict[str, bool] = {}
    for unspaced, units in words(query):
        if not unspaced:
            terms["".join(units)] = True
        elif len(units) == 1:
            terms[units[0]] = False
        else:
            terms |= {units[n] + units[n + 1]: False for n in range(len(units) - 1)}
    return terms


def edits(first: str, second: str) -> int:
    row = list(range(len(second) + 1))
    for i, left in enumerate(first, start=1):
        above, row = row, [i]
        for j, right in enumerate(second, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (left != right)))
    return row[-1]


def naive_bm25(column: list[str | None], query: str) -> dict[int, float]:
    texts = {n: naive_tokens(text) for n, text in enumerate(column) if text is not None}
    average = sum(map(len, texts.values())) / len(texts) if texts else 0.0
    scores: dict[int, float] = {}
    for term in naive_terms(query):
        having = [n for n, tokens in texts.items() if term in tokens]
        idf = math.log(1 + (len(texts) - len(having) + 0.5) / (len(having) + 0.5))
        for n in having:
            count, length = texts[n].count(term), len(texts[n])
            part = idf * count * 2.2 / (count + 1.2 * (1 - 0.75 + 0.75 * length / average))
            scores[n] = scores.get(n, 0.0) + part
    return scores


def strings(column: list[str | None]) -> pa.Array:
    return pa.array(column, pa.string())


@dataclass(frozen=True)
class IndexedField:
    """An index as the only field of a query; phrases, which need the texts, are tested elsewhere."""

    index: TextIndex
    analyzer: Analyzer = SIMPLE
    boost: float = 1.0

    def texts(self, ordinals: Ordinals) -> pa.Array:
        raise AssertionError(f"the texts of {ordinals} are not needed")


def evaluation(index: TextIndex, query: str) -> TextEvaluation:
    return TextEvaluation(plain_query(query, [SIMPLE]), [IndexedField(index)])


def matches_any(index: TextIndex, query: str) -> Mask:
    return evaluation(index, query).matches()


def bm25(index: TextIndex, query: str) -> tuple[Ordinals, Scores]:
    ranked = evaluation(index, query)
    return ranked.scores(ranked.statistics())


def in_steps(column: list[str | None], cuts: list[int]) -> TextIndex:
    """The index built by appending a part of the column at a time."""
    bounds = [0, *sorted(min(cut, len(column)) for cut in cuts), len(column)]
    index = TextIndex.build(strings([]))
    for start, stop in pairwise(bounds):
        index = index.extended(strings(column[start:stop]))
    return index


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Hello, WORLD", ["hello", "world"]),
        ("snake_case it's 3.5", ["snake", "case", "it", "s", "3", "5"]),
        ("Cafe\u0301 café CAFÉ cafe", ["café", "café", "café", "cafe"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("ΣΑΣ σας", ["σασ", "σασ"]),
        ("ＡＢＣ ﬁn x² ½", ["abc", "fin", "x2", "1", "2"]),
        ("Acme™ ❤\ufe0f", ["acme"]),
        ("हिन्दी العربية עברית", ["हिन्दी", "العربية", "עברית"]),
        ("東京", ["東", "京", "東京"]),
        ("葛\U000e0100城ｶﾞ", ["葛", "城", "ガ", "葛城", "城ガ"]),
        ("ที่นี่", ["ที่", "นี่", "ที่นี่"]),
        ("v2手", ["v2", "手"]),
        ("=\u0338 \u0301", []),
        ("a\ud800b", ["a", "b"]),
        (" \t\n", []),
    ],
)
def test_tokenize_text_matches_the_definition(text: str, tokens: list[str]) -> None:
    assert SIMPLE.tokens(text) == tokens


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_tokenize_any_text_matches_character_by_character_reference(text: str) -> None:
    assert SIMPLE.tokens(text) == naive_tokens(text)
    assert SIMPLE.query_terms(text) == sorted(naive_terms(text))


def characters() -> list[str]:
    """All letters, numbers and marks but for most of the many Han and Hangul characters, which are alike."""
    codes = [*range(0x4E20), *range(0x9F00, 0xAC20), *range(0xD700, 0x17000), *range(0x1AFF0, 0x20010)]
    return [chr(code) for code in codes if unicodedata.category(chr(code))[0] in "LNM"]


def test_tokenize_single_letter_or_number_is_one_token() -> None:
    # A few Arabic letters of Unicode's are marks on a blank.
    found = [char for char in characters() if set(unicodedata.normalize("NFKC", char)).difference(MARKS)]
    assert [hex(ord(char)) for char in found if not SIMPLE.tokens(char)] == []


def test_tokenize_any_character_next_to_a_letter_matches_the_definition() -> None:
    differ = [char for char in characters() if SIMPLE.tokens("a" + char) != naive_tokens("a" + char)]
    assert [hex(ord(char)) for char in differ] == []


def test_tokenize_of_a_token_returns_it() -> None:
    changed = [
        char
        for char in characters()
        for token in SIMPLE.tokens("a" + char)
        if SIMPLE.tokens(token)[-1] != token
    ]
    assert [hex(ord(char)) for char in changed] == []


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_index_of_every_arrow_string_type_finds_rows(kind: pa.DataType) -> None:
    index = TextIndex.build(pa.array(["red", None, "blue"]).cast(kind))
    assert matches_any(index, "blue red").tolist() == [True, False, True]


def test_index_of_chunked_and_sliced_arrays_finds_rows() -> None:
    column = pa.chunked_array([["no", "red fox", "ox"], [], [None, "fox"]], pa.string()).slice(1, 3)
    index = TextIndex.build(column)
    assert len(index) == 3
    assert matches_any(index, "fox").tolist() == [True, False, False]
    assert matches_any(index, "ox").tolist() == [False, True, False]


def test_index_ignores_bytes_under_nulls() -> None:
    validity = pa.py_buffer(bytes([0b10]))
    offsets = pa.py_buffer(np.array([0, 3, 6], np.int32))
    column = pa.Array.from_buffers(pa.string(), 2, [validity, offsets, pa.py_buffer(b"redfox")])
    index = TextIndex.build(column)
    assert matches_any(index, "red fox redfox").tolist() == [False, True]


def test_search_in_column_of_nulls_matches_nothing() -> None:
    for column in (strings([]), strings([None, None]), strings(["", "-"]), pa.nulls(2)):
        index = TextIndex.build(column)
        assert matches_any(index, "a").tolist() == [False] * len(column)
        assert index.matches_fuzzy("a", 5).tolist() == [False] * len(column)
        assert [part.tolist() for part in bm25(index, "a")] == [[], []]


def test_search_without_tokens_matches_nothing() -> None:
    index = TextIndex.build(strings(["a", "", "?"]))
    assert not matches_any(index, "?").any()
    assert not index.matches_fuzzy("", 3).any()
    assert len(bm25(index, " ")[0]) == 0


def test_search_in_text_without_spaces_finds_words_and_not_characters() -> None:
    index = TextIndex.build(strings(["私は東京タワーへ行く", "京都の東", "東京"]))
    assert matches_any(index, "東京").tolist() == [True, False, True]
    assert matches_any(index, "東").tolist() == [True, True, True]
    assert bm25(index, "東京")[0].tolist() == [0, 2]


@settings(max_examples=120, deadline=None)
@given(COLUMNS, QUERIES, st.lists(st.integers(0, 12), max_size=4))
def test_search_matches_rows_with_any_token(column: list[str | None], query: str, cuts: list[int]) -> None:
    terms = naive_terms(query)
    expected = [text is not None and not terms.keys().isdisjoint(naive_tokens(text)) for text in column]
    assert matches_any(TextIndex.build(strings(column)), query).tolist() == expected
    assert matches_any(in_steps(column, cuts), query).tolist() == expected


@settings(max_examples=120, deadline=None)
@given(COLUMNS, QUERIES, st.integers(0, 3), st.lists(st.integers(0, 12), max_size=4))
def test_fuzzy_search_matches_rows_within_the_edit_distance(
    column: list[str | None], query: str, most: int, cuts: list[int]
) -> None:
    terms = naive_terms(query)

    def close(term: str, token: str) -> bool:
        if not terms[term] or unicodedata.name(token[0], "").startswith(UNSPACED):
            return term == token
        return edits(term, token) <= most

    expected = [
        any(close(term, token) for term in terms for token in naive_tokens(text or "")) for text in column
    ]
    assert in_steps(column, cuts).matches_fuzzy(query, most).tolist() == expected


@settings(max_examples=100, deadline=None)
@given(
    st.text("abc", min_size=1, max_size=9),
    st.lists(st.text("abc", min_size=1, max_size=9), max_size=9),
    st.integers(0, 12),
)
def test_edit_distance_matches_the_reference(word: str, others: list[str], most: int) -> None:
    found = TextIndex.build(strings([*others])).matches_fuzzy(word, most)
    assert found.tolist() == [edits(word, other) <= most for other in others]


def test_edit_distance_of_transposition_is_two() -> None:
    index = TextIndex.build(strings(["from", "form", "for"]))
    assert index.matches_fuzzy("from", 1).tolist() == [True, False, False]
    assert index.matches_fuzzy("from", 2).tolist() == [True, True, True]


def test_edit_distance_counts_characters_not_bytes() -> None:
    index = TextIndex.build(strings(["größe", "grosse", "grße"]))
    assert index.matches_fuzzy("grüsse", 1).tolist() == [True, True, True]
    assert index.matches_fuzzy("𝛼βγδ", 0).tolist() == [False, False, False]
    assert TextIndex.build(strings(["𐐀𐐁𐐂"])).matches_fuzzy("𐐀𐐂", 1).tolist() == [True]


def test_fuzzy_search_with_negative_edits_is_refused() -> None:
    index = TextIndex.build(strings(["abc", None]))
    assert index.matches_fuzzy("xyzzy", 2**63 - 1).tolist() == [True, False]
    with pytest.raises(InvalidInput, match="at least 0, got -1"):
        index.matches_fuzzy("abc", -1)


def test_edit_distance_of_long_words_matches_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edit_distance, "_TABLE_CELLS", 8)
    column = [chr(97 + n) * 3 for n in range(20)]
    found = TextIndex.build(strings([*column])).matches_fuzzy("cccd", 1)
    assert np.flatnonzero(found).tolist() == [2]


@settings(max_examples=120, deadline=None)
@given(COLUMNS, QUERIES)
def test_scores_match_the_bm25_formula(column: list[str | None], query: str) -> None:
    expected = naive_bm25(column, query)
    ordinals, scores = bm25(TextIndex.build(strings(column)), query)
    assert (str(ordinals.dtype), str(scores.dtype)) == ("int64", "float64")
    assert ordinals.tolist() == sorted(expected)
    assert scores.tolist() == pytest.approx([expected[n] for n in ordinals.tolist()], rel=1e-12)


def test_scores_of_small_corpus_match_values_computed_by_hand() -> None:
    # Three texts of 2, 3 and 1 tokens, 2 on average; `red` is in two, so it weighs ln(1 + 1.5 / 2.5).
    index = TextIndex.build(strings(["red fox", None, "red wine red", "blue"]))
    ordinals, scores = bm25(index, "Red red green")
    assert ordinals.tolist() == [0, 2]
    weight = math.log(1.6)
    assert scores.tolist() == pytest.approx([weight * 2.2 / 2.2, weight * 4.4 / (2 + 1.2 * 1.375)])


def test_scores_ignore_repetition_and_order_of_query_words() -> None:
    index = TextIndex.build(strings(["x y z", "z z y", "x", "y y"]))
    assert bm25(index, "z y x")[1].tolist() == bm25(index, "x y z y y")[1].tolist()


def test_scores_count_empty_texts_and_ignore_nulls() -> None:
    plain = bm25(TextIndex.build(strings(["a b", "c"])), "a")[1][0]
    assert bm25(TextIndex.build(strings(["a b", "c", None])), "a")[1][0] == plain
    assert bm25(TextIndex.build(strings(["a b", "c", ""])), "a")[1][0] != plain


@settings(max_examples=120, deadline=None)
@given(COLUMNS, QUERIES, st.lists(st.integers(0, 12), max_size=6), st.integers(1, 40))
def test_scores_are_independent_of_index_segments(
    column: list[str | None], query: str, cuts: list[int], slice_bytes: int
) -> None:
    whole = bm25(TextIndex.build(strings(column)), query)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inverted_texts, "SLICE_BYTES", slice_bytes)
        parts = bm25(in_steps(column, cuts), query)
    assert parts[0].tolist() == whole[0].tolist()
    assert parts[1].tobytes() == whole[1].tobytes()


def test_extend_row_by_row_keeps_few_segments_and_all_rows() -> None:
    rows = [f"w{n} w{n % 7}" for n in range(200)]
    index = TextIndex.build(strings([]))
    for row in rows:
        index = index.extended(strings([row]))
    whole = TextIndex.build(strings([*rows]))
    assert len(index._segments) <= 8 < len(index)
    assert bm25(index, "w3 w4 w150")[1].tobytes() == bm25(whole, "w3 w4 w150")[1].tobytes()
    assert index.matches_fuzzy("w15", 0).tolist() == matches_any(whole, "w15").tolist()


def test_extend_does_not_change_the_original_index() -> None:
    first = TextIndex.build(strings(["a", "b"]))
    size, before = first.nbytes, bm25(first, "a")[1].tolist()
    second = first.extended(strings(["a", "b"]))
    assert (len(first), first.nbytes, bm25(first, "a")[1].tolist()) == (2, size, before)
    assert (len(second), matches_any(second, "a").tolist()) == (4, [True, False, True, False])
    assert second.nbytes > size > 0


def test_extend_with_few_rows_reuses_large_segments() -> None:
    big = TextIndex.build(strings([f"w{n}" for n in range(1000)]))
    assert big.extended(strings(["w1"]))._segments[0] is big._segments[0]


def test_extend_beyond_the_ordinal_range_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "_MAX_ROWS", 3)
    index = TextIndex.build(strings(["a", "b"])).extended(strings(["c"]))
    with pytest.raises(ResourceLimit, match="at most 3 rows, got 4"):
        index.extended(strings(["d"]))


def test_fuzzy_word_that_is_too_long_is_refused() -> None:
    index = TextIndex.build(pa.array(["x" * MAX_FUZZY_WORD]))
    assert index.matches_fuzzy("x" * MAX_FUZZY_WORD, 1).tolist() == [True]
    with pytest.raises(ResourceLimit) as caught:
        index.matches_fuzzy("x" * (MAX_FUZZY_WORD + 1), 1)
    assert caught.value.details["resource"] == "fuzzy_word_characters"
    assert index.matches_fuzzy("x" * (MAX_FUZZY_WORD + 1), 0).tolist() == [False]


@pytest.mark.parametrize(
    "search",
    [
        lambda index: index.matches_fuzzy("fox", 1),
        lambda index: bm25(index, "fox"),
        lambda index: index.extended(pa.array(["fox"])),
    ],
    ids=["fuzzy", "bm25", "analysis"],
)
def test_search_after_the_deadline_is_given_up(search: Callable[[TextIndex], object]) -> None:
    index = TextIndex.build(pa.array(["fox"]))
    with time_limit(0), pytest.raises(ResourceLimit) as caught:
        search(index)
    assert caught.value.details["resource"] == "read_seconds"
