"""Parser tables: they match their grammar, and the parser is the same with and without them."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omnigraph.lang.diagnostics import Diagnostics
from omnigraph.lang.gq import query_parser
from omnigraph.lang.lalr_parser import LalrParser
from omnigraph.lang.parser_tables import (
    FOLDER,
    QUERY_GRAMMAR,
    SCHEMA_GRAMMAR,
    Grammar,
    ParseTables,
    load_tables,
    write_tables,
)
from omnigraph.lang.pg import schema_parser
from omnigraph.lang.pg.schema_ast import NodeDecl
from omnigraph.lang.pg.schema_parser import SchemaBuilder
from omnigraph.lang.source import Source

ROOT = Path(__file__).parents[2]
GRAMMARS = [QUERY_GRAMMAR, SCHEMA_GRAMMAR]
RENEW = "the parser tables are out of date: run scripts/parser-tables"

each_grammar = pytest.mark.parametrize("grammar", GRAMMARS, ids=[item.name for item in GRAMMARS])


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


def parse_schema_with(tables: ParseTables, text: str) -> Any:
    """Return the declarations of a schema text that is parsed with certain tables."""
    builder = SchemaBuilder(Diagnostics(Source(text), "parse"))
    return LalrParser(tables, SchemaBuilder).parse(text, builder).value


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
    assert load_tables(grammar).is_stored, RENEW


def test_both_languages_parse_with_their_tables() -> None:
    assert query_parser._parser().tables.is_stored, RENEW
    assert schema_parser._parser().tables.is_stored, RENEW


@each_grammar
def test_nothing_is_unpickled(grammar: Grammar, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("unpickled")

    monkeypatch.setattr(pickle, "load", refuse)
    monkeypatch.setattr(pickle, "loads", refuse)
    assert load_tables(grammar).is_stored


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
    "another layout": edit_header("layout", 1),
    "another grammar": edit_header("grammar", "0" * 64),
    "other options": edit_header("options", {**SCHEMA_GRAMMAR.options, "start": "node"}),
    "empty": lambda _: b"",
    "no content": lambda file: file.partition(b"\n")[0],
    "cut short": lambda file: file[:-10],
    "damaged": flip_a_byte,
    "of another kind": lambda _: pickle.dumps({"data": {}, "memo": {}}),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_tables_that_do_not_fit_are_passed_over(misfit: str, tmp_path: Path) -> None:
    folder = copy_language(SCHEMA_GRAMMAR, tmp_path, ".lark", ".tables")
    assert load_tables(SCHEMA_GRAMMAR, folder).is_stored
    file = folder / "pg.tables"
    file.write_bytes(MISFITS[misfit](file.read_bytes()))
    computed = load_tables(SCHEMA_GRAMMAR, folder)
    assert not computed.is_stored
    assert replace(computed, is_stored=True) == load_tables(SCHEMA_GRAMMAR)
    (declaration,) = parse_schema_with(computed, "node Person { name: String }")
    assert isinstance(declaration, NodeDecl)


def test_a_changed_grammar_counts_at_once(tmp_path: Path) -> None:
    folder = copy_language(SCHEMA_GRAMMAR, tmp_path, ".lark", ".tables")
    grammar = folder / "pg.lark"
    text = grammar.read_text(encoding="utf-8")
    assert "/interface(?!" in text
    grammar.write_text(text.replace("/interface(?!", "/trait(?!"), encoding="utf-8")
    (declaration,) = parse_schema_with(load_tables(SCHEMA_GRAMMAR, folder), "trait Named { name: String }")
    assert declaration.name == "Named"


def test_new_tables_are_used(tmp_path: Path) -> None:
    folder = copy_language(SCHEMA_GRAMMAR, tmp_path, ".lark")
    assert not load_tables(SCHEMA_GRAMMAR, folder).is_stored
    write_tables(SCHEMA_GRAMMAR, folder)
    assert load_tables(SCHEMA_GRAMMAR, folder).is_stored
