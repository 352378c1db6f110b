"""Precomputed LALR tables of the two grammars.

Lark reads a grammar and computes its tables, which takes longer than a whole point query. The tables are
therefore stored beside the grammar in a `.tables` file: a JSON header that identifies their inputs, then
compressed JSON. Tables of another grammar or of other options are ignored, and lark computes them anew. Texts are
parsed by `lalr_parser` and not by lark, so a process that finds its tables does not import lark.

Run ``scripts/parser-tables`` after a change of a grammar or of the pinned version of lark.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from lark import Lark
    from lark.grammar import Rule

FOLDER = Path(__file__).parent
END = "$END"

_Json: TypeAlias = dict[str, Any]
# The width of a pattern without an upper bound depends on the Python version.
_WIDEST = 2**32 - 1
# The layout of the tables; a change makes older files outdated.
_LAYOUT = 2


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
            "start": self.start,
        }


QUERY_GRAMMAR = Grammar("gq", start="start", maybe_placeholders=True)
SCHEMA_GRAMMAR = Grammar("pg", start="file", maybe_placeholders=False)


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal. `keyword_of` names the terminals whose pattern also matches this text, which take precedence
    only where the grammar does not allow the keyword.
    """

    name: str
    pattern: str
    text: str | None
    keyword_of: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reduction:
    """A rule of the grammar.

    `kept` lists the children of the node: the position of each, whether it is replaced by its own children, and
    the number of absent optional children before it. `absent` is their number after the last one.
    """

    name: str
    origin: str
    size: int
    kept: tuple[tuple[int, bool, int], ...]
    absent: int
    is_inlined: bool
    is_transparent: bool


@dataclass(frozen=True, slots=True)
class ParseTables:
    """The tables of a grammar. `terminals` is in the order of precedence.

    A row has an action for each symbol: the next state, or ``-1 - n`` for the reduction `n`. State 0 is the first.
    """

    terminals: tuple[Terminal, ...]
    ignored: tuple[str, ...]
    reductions: tuple[Reduction, ...]
    rows: tuple[dict[str, int], ...]
    end_state: int
    is_stored: bool


def load_tables(grammar: Grammar, folder: Path = FOLDER) -> ParseTables:
    """Read the tables of a grammar, or compute them when they are missing or outdated."""
    text = _read_grammar(grammar, folder)
    packed = _read_tables(grammar, text, folder)
    return (
        _unpack(_pack(grammar, text), is_stored=False) if packed is None else _unpack(packed, is_stored=True)
    )


def write_tables(grammar: Grammar, folder: Path = FOLDER) -> None:
    """Compute the tables of a grammar and write them beside it. The output is deterministic."""
    import lark

    text = _read_grammar(grammar, folder)
    content = json.dumps(_pack(grammar, text), separators=(",", ":"), sort_keys=True)
    header = json.dumps({**_describe(grammar, text), "lark": lark.__version__}, sort_keys=True)
    _tables_file(grammar, folder).write_bytes(
        header.encode() + b"\n" + zlib.compress(content.encode(), level=9)
    )


def _read_grammar(grammar: Grammar, folder: Path) -> str:
    return (folder / f"{grammar.name}.lark").read_text(encoding="utf-8")


def _tables_file(grammar: Grammar, folder: Path) -> Path:
    return folder / f"{grammar.name}.tables"


def _describe(grammar: Grammar, text: str) -> _Json:
    """Return everything that the tables depend on, except lark, whose version is only recorded."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"grammar": digest, "layout": _LAYOUT, "options": grammar.options}


def _read_tables(grammar: Grammar, text: str, folder: Path) -> _Json | None:
    try:
        header, _, content = _tables_file(grammar, folder).read_bytes().partition(b"\n")
        stored = json.loads(header)
        if {name: value for name, value in stored.items() if name != "lark"} != _describe(grammar, text):
            return None
        packed: _Json = json.loads(zlib.decompress(content))
        return packed
    except (AttributeError, FileNotFoundError, ValueError, zlib.error):
        # A missing or damaged file only costs time: the caller computes the tables.
        return None


def _unpack(packed: _Json, *, is_stored: bool) -> ParseTables:
    symbols = packed["symbols"]
    return ParseTables(
        terminals=tuple(
            Terminal(name, pattern, text, tuple(keyword_of))
            for name, pattern, text, keyword_of in packed["terminals"]
        ),
        ignored=tuple(packed["ignored"]),
        reductions=tuple(
            Reduction(name, origin, size, tuple(map(tuple, kept)), absent, is_inlined, is_transparent)
            for name, origin, size, kept, absent, is_inlined, is_transparent in packed["reductions"]
        ),
        rows=tuple(
            {symbols[symbol]: action for symbol, action in zip(row[::2], row[1::2], strict=True)}
            for row in packed["rows"]
        ),
        end_state=packed["end_state"],
        is_stored=is_stored,
    )


# --- the tables that lark computes -----------------------------------------------------------------------


def _pack(grammar: Grammar, text: str) -> _Json:
    """Compute the tables. Lark numbers states differently in every run; here the grammar decides their order."""
    from lark import Lark
    from lark.parsers.lalr_analysis import Shift

    parser = Lark(text, **grammar.options)
    table = parser.parser.parser._parse_table  # noqa: SLF001 - lark has no other access
    start, end = table.start_states[grammar.start], table.end_states[grammar.start]
    state_numbers = {start: 0}
    rule_numbers: dict[Rule, int] = {}
    symbols = sorted({symbol for row in table.states.values() for symbol in row})
    rows: list[list[int]] = []
    queue = [start]
    for state in queue:
        row: list[int] = []
        for number, symbol in enumerate(symbols):
            if symbol not in table.states[state]:
                continue
            action, argument = table.states[state][symbol]
            if action is Shift:
                if argument not in state_numbers:
                    state_numbers[argument] = len(state_numbers)
                    queue.append(argument)
                row += [number, state_numbers[argument]]
            else:
                row += [number, -1 - rule_numbers.setdefault(argument, len(rule_numbers))]
        rows.append(row)
    return {
        "end_state": state_numbers[end],
        "ignored": sorted(parser.ignore_tokens),
        "reductions": [_pack_rule(rule, grammar.maybe_placeholders) for rule in rule_numbers],
        "rows": rows,
        "symbols": symbols,
        "terminals": _pack_terminals(parser),
    }


def _pack_terminals(parser: Lark) -> list[list[Any]]:
    """Return the terminals in the order in which lark tries them."""
    ordered = sorted(
        parser.terminals,
        key=lambda item: (
            -item.priority,
            -min(item.pattern.max_width, _WIDEST),
            -len(item.pattern.value),
            item.name,
        ),
    )
    packed: list[list[Any]] = []
    for terminal in ordered:
        text = terminal.pattern.value if terminal.pattern.type == "str" else None
        keyword_of = []
        for other in ordered if text is not None else ():
            if other.pattern.type == "re" and other.priority == terminal.priority:
                match = re.match(other.pattern.to_regexp(), str(text))
                if match is not None and match.group() == text:
                    keyword_of.append(other.name)
        packed.append([terminal.name, terminal.pattern.to_regexp(), text, keyword_of])
    return packed


def _pack_rule(rule: Rule, maybe_placeholders: bool) -> list[Any]:
    options = rule.options
    # One item for each symbol (False) and for each absent optional one (True).
    absent_marks = (
        list(options.empty_indices)
        if maybe_placeholders and options.empty_indices
        else [False] * len(rule.expansion)
    )
    kept: list[list[Any]] = []
    absent = position = 0
    for is_absent in absent_marks:
        if is_absent:
            absent += 1
            continue
        symbol = rule.expansion[position]
        if not (symbol.is_term and symbol.filter_out):  # type: ignore[attr-defined]
            kept.append([position, not symbol.is_term and symbol.name.startswith("_"), absent])
            absent = 0
        position += 1
    name = rule.alias or options.template_source or rule.origin.name
    is_inlined = rule.origin.name.startswith("_")
    is_transparent = bool(options.expand1 and not rule.alias)
    return [name, rule.origin.name, len(rule.expansion), kept, absent, is_inlined, is_transparent]
