"""Parser tables: they match their grammar, and the parser behaves the same with and without them."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from lark import Lark, Token, Tree

from omnigraph.lang.gq import query_parser
from omnigraph.lang.parser_tables import (
    FOLDER,
    QUERY_GRAMMAR,
    SCHEMA_GRAMMAR,
    Grammar,
    make_parser,
    write_tables,
)
from omnigraph.lang.parsing import ParseTree, parse_with_recovery
from omnigraph.lang.pg import schema_parser
from omnigraph.lang.source import Source
from tests.golden.corpus import GOLDEN

ROOT = Path(__file__).parents[2]
GRAMMARS = [QUERY_GRAMMAR, SCHEMA_GRAMMAR]
RENEW = "the parser tables are out of date: run scripts/parser-tables"

each_grammar = pytest.mark.parametrize("grammar", GRAMMARS, ids=[item.name for item in GRAMMARS])


def from_tables(parser: Lark) -> bool:
    return parser.source_path == "<deserialized>"


def tables(grammar: Grammar, folder: Path = FOLDER) -> tuple[dict[str, Any], Any]:
    """Return the header and the content of a tables file."""
    file = folder / f"{grammar.name}.tables"
    assert file.is_file(), RENEW
    header, _, content = file.read_bytes().partition(b"\n")
    # Compressed bytes may differ between builds of zlib; the content may not.
    return json.loads(header), json.loads(zlib.decompress(content))


def copy_language(grammar: Grammar, folder: Path, *suffixes: str) -> Path:
    for suffix in suffixes:
        shutil.copy(FOLDER / f"{grammar.name}{suffix}", folder)
    return folder


def built(grammar: Grammar, folder: Path) -> Lark:
    """Return the parser built without tables."""
    parser = make_parser(grammar, copy_language(grammar, folder, ".lark"))
    assert not from_tables(parser)
    return parser


# --- the tables in the package ---------------------------------------------------------------------------


@each_grammar
def test_the_tables_are_those_of_the_grammar(grammar: Grammar, tmp_path: Path) -> None:
    write_tables(grammar, copy_language(grammar, tmp_path, ".lark"))
    # Compared before the assertion, because rendering the difference would take minutes.
    same = tables(grammar, tmp_path) == tables(grammar)
    assert same, RENEW


@each_grammar
def test_the_tables_are_those_of_the_pinned_lark(grammar: Grammar) -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = re.search(r"^lark==(\S+)$", pins, flags=re.MULTILINE)
    assert pinned is not None
    assert tables(grammar)[0]["lark"] == pinned.group(1), RENEW


@each_grammar
def test_the_tables_are_used(grammar: Grammar) -> None:
    assert from_tables(make_parser(grammar)), RENEW


def test_both_languages_parse_with_their_tables() -> None:
    assert from_tables(query_parser._parser()), RENEW
    assert from_tables(schema_parser._parser()), RENEW


@each_grammar
def test_nothing_is_unpickled(grammar: Grammar, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("unpickled")

    monkeypatch.setattr(pickle, "load", refuse)
    monkeypatch.setattr(pickle, "loads", refuse)
    assert from_tables(make_parser(grammar))


# --- tables that do not fit ------------------------------------------------------------------------------


def edit_header(key: str, value: object) -> Callable[[bytes], bytes]:
    def edit(file: bytes) -> bytes:
        header, _, content = file.partition(b"\n")
        return json.dumps({**json.loads(header), key: value}).encode() + b"\n" + content

    return edit


def flip_a_byte(file: bytes) -> bytes:
    middle = len(file) // 2
    return file[:middle] + bytes([file[middle] ^ 1]) + file[middle + 1 :]


MISFITS: Mapping[str, Callable[[bytes], bytes]] = {
    "another lark": edit_header("lark", "0.0.1"),
    "another grammar": edit_header("grammar", "0" * 64),
    "other options": edit_header("options", {**SCHEMA_GRAMMAR.options, "propagate_positions": False}),
    "empty": lambda _: b"",
    "no content": lambda file: file.partition(b"\n")[0],
    "cut short": lambda file: file[:-10],
    "damaged": flip_a_byte,
    "of another kind": lambda _: pickle.dumps({"data": {}, "memo": {}}),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_tables_that_do_not_fit_are_passed_over(misfit: str, tmp_path: Path) -> None:
    folder = copy_language(SCHEMA_GRAMMAR, tmp_path, ".lark", ".tables")
    assert from_tables(make_parser(SCHEMA_GRAMMAR, folder))
    file = folder / "pg.tables"
    file.write_bytes(MISFITS[misfit](file.read_bytes()))
    parser = make_parser(SCHEMA_GRAMMAR, folder)
    assert not from_tables(parser)
    assert parser.parse("node Person { name: String }").data == "file"


def test_a_changed_grammar_counts_at_once(tmp_path: Path) -> None:
    folder = copy_language(SCHEMA_GRAMMAR, tmp_path, ".lark", ".tables")
    grammar = folder / "pg.lark"
    text = grammar.read_text(encoding="utf-8")
    assert "/interface(?!" in text
    grammar.write_text(text.replace("/interface(?!", "/trait(?!"), encoding="utf-8")
    assert make_parser(SCHEMA_GRAMMAR, folder).parse("trait Named { name: String }").data == "file"


def test_new_tables_are_used(tmp_path: Path) -> None:
    folder = copy_language(SCHEMA_GRAMMAR, tmp_path, ".lark")
    assert not from_tables(make_parser(SCHEMA_GRAMMAR, folder))
    write_tables(SCHEMA_GRAMMAR, folder)
    assert from_tables(make_parser(SCHEMA_GRAMMAR, folder))


# --- with tables and without -----------------------------------------------------------------------------


def outline(tree: ParseTree | None) -> list[tuple[object, ...]]:
    """Yield every node and token of a tree with its position, which tree equality ignores."""
    found: list[tuple[object, ...]] = []
    left: list[tuple[int, object]] = [(0, tree)]
    while left:
        depth, node = left.pop()
        if isinstance(node, Tree):
            place = None if node.meta.empty else (node.meta.start_pos, node.meta.end_pos)
            found.append((depth, node.data, place))
            left.extend((depth + 1, child) for child in node.children)
        elif isinstance(node, Token):
            found.append((depth, node.type, str(node), node.start_pos, node.end_pos))
        else:
            found.append((depth, node))
    return found


def damaged(text: str) -> list[str]:
    """Yield the text and damaged variants: truncated, with an extra bracket, with a missing word."""
    words = list(re.finditer(r"\w+|[^\w\s]", text))
    without = [text[: word.start()] + text[word.end() :] for word in words[:: max(1, len(words) // 3)]]
    return [text, text[: 2 * len(text) // 3], f"{text}\n}}", f"# {text}", *without]


def texts(suffix: str) -> list[str]:
    found = [path.read_text(encoding="utf-8") for path in sorted(GOLDEN.rglob(f"*{suffix}"))]
    assert len(found) >= 20
    # The recovery from errors is the same for most texts, and slow without tables.
    return [*found, *(variant for text in found[::4] for variant in damaged(text))]


def compare(quick: Lark, slow: Lark, suffix: str, parse: Callable[[Lark, Source], Any]) -> None:
    assert from_tables(quick)
    wrong = 0
    for text in texts(suffix):
        (tree, found), (expected_tree, expected) = (parse(item, Source(text)) for item in (quick, slow))
        assert found == expected
        assert outline(tree) == outline(expected_tree)
        wrong += bool(found)
    assert wrong >= 20


def test_queries_read_the_same_with_tables_and_without(tmp_path: Path) -> None:
    def parse(parser: Lark, source: Source) -> Any:
        return parse_with_recovery(parser, source, query_parser._STARTS, query_parser._TERMINAL_NAMES)

    compare(make_parser(QUERY_GRAMMAR), built(QUERY_GRAMMAR, tmp_path), ".gq", parse)


def test_schemas_read_the_same_with_tables_and_without(tmp_path: Path) -> None:
    def parse(parser: Lark, source: Source) -> Any:
        return parse_with_recovery(
            parser, source, schema_parser.STARTS, schema_parser._TERMINAL_NAMES, schema_parser._HINTS
        )

    compare(make_parser(SCHEMA_GRAMMAR), built(SCHEMA_GRAMMAR, tmp_path), ".pg", parse)
