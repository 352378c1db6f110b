"""Precomputed LALR tables of the two grammars.

Computing the LALR tables of a grammar takes longer than a whole point query. They are therefore stored beside
the grammar in a `.tables` file: a JSON header that identifies their inputs, then compressed JSON. Tables of
another grammar, other options or another version of lark are ignored, and the parser is built from the grammar.

Run ``scripts/parser-tables`` after a change of a grammar or of the pinned version of lark.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import lark
from lark import Lark
from lark.common import ParserCallbacks
from lark.grammar import Rule
from lark.lexer import TerminalDef
from lark.parsers.lalr_analysis import Reduce, Shift
from lark.parsers.lalr_parser import LALR_Parser

FOLDER = Path(__file__).parent

_Json: TypeAlias = dict[str, Any]
# The width of a pattern without an upper bound depends on the Python version; lark only sorts by it.
_WIDEST = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar file of this folder and the lark options for it."""

    name: str
    start: str
    maybe_placeholders: bool

    @property
    def options(self) -> _Json:
        return {
            "lexer": "contextual",
            "maybe_placeholders": self.maybe_placeholders,
            "parser": "lalr",
            "propagate_positions": True,
            "start": self.start,
        }


QUERY_GRAMMAR = Grammar("gq", start="start", maybe_placeholders=True)
SCHEMA_GRAMMAR = Grammar("pg", start="file", maybe_placeholders=False)


def make_parser(grammar: Grammar, folder: Path = FOLDER) -> Lark:
    """Load the parser of a grammar from its tables, or build it when they are missing or outdated."""
    text = _read_grammar(grammar, folder)
    return _load_parser(grammar, text, folder) or _build_parser(grammar, text)


def write_tables(grammar: Grammar, folder: Path = FOLDER) -> None:
    """Compute the tables of a grammar and write them beside it. The output is deterministic."""
    text = _read_grammar(grammar, folder)
    content = json.dumps(_pack(_build_parser(grammar, text)), separators=(",", ":"), sort_keys=True)
    header = json.dumps(_describe(grammar, text), sort_keys=True)
    _tables_file(grammar, folder).write_bytes(
        header.encode() + b"\n" + zlib.compress(content.encode(), level=9)
    )


def _read_grammar(grammar: Grammar, folder: Path) -> str:
    return (folder / f"{grammar.name}.lark").read_text(encoding="utf-8")


def _tables_file(grammar: Grammar, folder: Path) -> Path:
    return folder / f"{grammar.name}.tables"


def _describe(grammar: Grammar, text: str) -> _Json:
    """Return everything that the tables depend on."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"grammar": digest, "lark": lark.__version__, "options": grammar.options}


def _build_parser(grammar: Grammar, text: str) -> Lark:
    return Lark(text, **grammar.options)


def _load_parser(grammar: Grammar, text: str, folder: Path) -> Lark | None:
    try:
        header, _, content = _tables_file(grammar, folder).read_bytes().partition(b"\n")
        if json.loads(header) != _describe(grammar, text):
            return None
        packed = json.loads(zlib.decompress(content))
    except (FileNotFoundError, ValueError, zlib.error):
        # A missing or damaged file only costs time: the caller builds the parser from the grammar.
        return None
    # Loading from a dictionary involves no pickle.
    return Lark.load(_unpack(packed))


# --- lark's serialized parser as JSON --------------------------------------------------------------------
#
# Lark serializes a parser to dictionaries, some of them with integer keys whose order changes from run to run.
# Here they become lists in a fixed order. An action of the parse table becomes one integer: twice the target
# state of a shift, or twice the rule of a reduction plus one.


def _pack(parser: Lark) -> _Json:
    data, memo = parser.memo_serialize([TerminalDef, Rule])
    for item in memo.values():
        if "_width" in item.get("pattern", {}):
            item["pattern"]["_width"] = [min(width, _WIDEST) for width in item["pattern"]["_width"]]
    table = data["parser"]["parser"]
    states = _breadth_first(table)
    number = {state: position for position, state in enumerate(states)}
    tokens = sorted(table["tokens"].values())
    place = {token: position for position, token in enumerate(tokens)}

    def pack_row(state: int) -> list[int]:
        row = []
        for token, (is_reduce, argument) in table["states"][state].items():
            action = 2 * argument["@"] + 1 if is_reduce else 2 * number[argument]
            row.append((place[table["tokens"][token]], action))
        return [part for pair in sorted(row) for part in pair]

    data["parser"]["parser"] = {
        "tokens": tokens,
        "states": [pack_row(state) for state in states],
        "start_states": {name: number[state] for name, state in table["start_states"].items()},
        "end_states": {name: number[state] for name, state in table["end_states"].items()},
    }
    return {"data": data, "memo": [memo[key] for key in range(len(memo))]}


def _unpack(packed: _Json) -> _Json:
    """Return the dictionary that lark loads a parser from."""
    data = packed["data"]
    data["options"]["_plugins"] = {"LALR_Parser": _PackedTable}
    data["parser"]["parser"]["tokens"] = dict(enumerate(data["parser"]["parser"]["tokens"]))
    return {"data": data, "memo": dict(enumerate(packed["memo"]))}


class _PackedTable:
    """Loads the parse table for lark. Lark itself would create one object for each of thousands of actions."""

    @staticmethod
    def deserialize(
        data: _Json, memo: dict[int, Any], callbacks: ParserCallbacks, debug: bool
    ) -> LALR_Parser:
        tokens, rows = data["tokens"], data["states"]
        empty = {**data, "states": {}}
        loaded: LALR_Parser = LALR_Parser.deserialize(empty, memo, callbacks, debug)  # type: ignore[no-untyped-call]
        shifts = [(Shift, state) for state in range(len(rows))]
        reduces = [(Reduce, rule) for rule in memo.values()]
        states = loaded.parser.parse_table.states
        for state, row in enumerate(rows):
            states[state] = {
                tokens[token]: reduces[code >> 1] if code & 1 else shifts[code >> 1]
                for token, code in zip(row[::2], row[1::2], strict=True)
            }
        return loaded


def _breadth_first(table: _Json) -> list[int]:
    """Return the states in breadth-first order from the start, an order that depends on the grammar alone."""
    visited = dict.fromkeys(state for _, state in sorted(table["start_states"].items()))
    queue = list(visited)
    for state in queue:
        row = table["states"][state]
        for token in sorted(row, key=table["tokens"].__getitem__):
            is_reduce, argument = row[token]
            if not is_reduce and argument not in visited:
                visited[argument] = None
                queue.append(argument)
    return queue
