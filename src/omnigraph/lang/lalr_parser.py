"""LALR parser that builds the AST while it reads.

The tables come from lark (`parser_tables`). Lark's own parser creates a tree with lines and columns for every node,
which takes four times as long. This one keeps offsets only, and calls the builder at each reduction.

The lexer is contextual: each state has a pattern of the terminals that are allowed there, so that a word is a
keyword only where the grammar expects that keyword.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from omnigraph.budget.deadline import check_deadline
from omnigraph.lang.parser_tables import END, ParseTables, Reduction
from omnigraph.lang.source import Span

_TOKENS_PER_CHECK = 256

_Match: TypeAlias = Callable[[str, int], re.Match[str] | None]


class Token(str):
    """The text of a terminal, with its name and position."""

    __slots__ = ("start", "type")

    type: str
    start: int

    @property
    def span(self) -> Span:
        """The span of the token. Most tokens are punctuation, whose span is never used."""
        return Span(self.start, self.start + len(self))


class SyntaxFailure(Exception):
    """The text does not conform to the grammar.

    `span` is the unexpected token; it is empty at the end of the text and None for a character that starts no
    token, at `start`. `accepted` has the terminals that could follow.
    """

    def __init__(self, start: int, span: Span | None, accepted: frozenset[str]) -> None:
        super().__init__(start, span, accepted)
        self.start = start
        self.span = span
        self.accepted = accepted


@dataclass(frozen=True, slots=True)
class Parsed:
    """The value of the start rule, and the spans of the rules that add a level of nesting."""

    value: Any
    nested: list[Span]


class _State:
    """A state: its pattern, which is compiled at the first use, its keywords, and its actions by symbol."""

    __slots__ = ("actions", "keywords", "match")

    def __init__(self, actions: dict[str, Any]) -> None:
        self.actions = actions
        self.match: _Match | None = None
        self.keywords: dict[str, str] = {}


# What a reduction does: keep the value of its only child, make a list for the rule above, or call the builder.
_KEEP, _LIST, _CALL = range(3)

# Size, origin, what it does, the children (None for all), absent children after the last, builder method, whether a
# single child takes the place of the node, and whether the rule adds a level.
_Action: TypeAlias = tuple[
    int, str, int, tuple[tuple[int, bool, int], ...] | None, int, Callable[..., Any] | None, bool, bool
]


class LalrParser:
    """A parser for one grammar. The builder class has a method for each rule, with a span and the children.

    `nesting` has the rules whose spans are reported. An instance can be shared by threads.
    """

    def __init__(self, tables: ParseTables, builder: type, nesting: Iterable[str] = ()) -> None:
        self.tables = tables
        self._scanners: dict[frozenset[str], tuple[_Match, dict[str, str]]] = {}
        patterns = {terminal.name: terminal.pattern for terminal in tables.terminals}
        ignored = "|".join(f"(?:{patterns[name]})" for name in tables.ignored)
        self._ignored = f"(?:{ignored})*+"
        self._skip = re.compile(self._ignored).match
        nests = frozenset(nesting)
        reductions = [_prepare(item, builder, nests) for item in tables.reductions]
        self._states = [
            _State(
                {symbol: action if action >= 0 else reductions[-1 - action] for symbol, action in row.items()}
            )
            for row in tables.rows
        ]

    def parse(self, text: str, builder: object) -> Parsed:
        """Return the value that the builder makes of a text.

        Raises `SyntaxFailure` for the first error, and `ResourceLimit` after the deadline of the work.
        """
        table, end_state = self._states, self.tables.end_state
        states = [0]
        values: list[Any] = []
        starts: list[int] = []
        nested: list[Span] = []
        # `last` is the end of the last token that was shifted, where the rules end that are reduced next.
        last = position = count = 0
        state = table[0]
        while True:
            if count % _TOKENS_PER_CHECK == 0:
                check_deadline()
            count += 1
            found = (state.match or self._compile(state))(text, position)
            token: Token | None = None
            if found is None:
                kind = self._require_end(text, position, states)
                start = position = len(text)
            else:
                kind = found.lastgroup or ""
                start, position = found.span(kind)
                word = text[start:position]
                kind = state.keywords.get(word, kind)
                token = Token(word)
                token.type = kind
                token.start = start
            while True:
                action = state.actions.get(kind)
                if action.__class__ is int:
                    states.append(action)
                    values.append(token)
                    starts.append(start)
                    last = position
                    state = table[action]
                    break
                if action is None:
                    raise SyntaxFailure(start, Span(start, position), self._accepted(states))
                size, origin, what, kept, absent, call, is_transparent, is_nesting = action
                if size == 1:
                    states.pop()
                    children = values[-1:]
                elif size:
                    children = values[-size:]
                    del values[1 - size :]
                    del starts[1 - size :]
                    del states[-size:]
                else:
                    # Only an empty text has an empty rule.
                    children = []
                    values.append(None)
                    starts.append(0)
                if what != _KEEP:
                    if kept is not None:
                        children = _select(children, kept, absent)
                    if what == _LIST:
                        values[-1] = children
                    elif is_transparent and len(children) == 1:
                        values[-1] = children[0]
                    else:
                        span = Span(starts[-1], last)
                        values[-1] = call(builder, span, children)
                        if is_nesting:
                            nested.append(span)
                reached = table[states[-1]].actions[origin]
                if reached == end_state and kind == END:
                    return Parsed(values[-1], nested)
                states.append(reached)
                state = table[reached]

    def _compile(self, state: _State) -> _Match:
        """Compile the pattern of a state; states that allow the same terminals share it."""
        allowed = frozenset(state.actions)
        scanner = self._scanners.get(allowed)
        if scanner is None:
            scanner = self._scanners[allowed] = self._scanner(allowed)
        # Another thread that sees the pattern must see the keywords.
        state.keywords = scanner[1]
        state.match = scanner[0]
        return scanner[0]

    def _scanner(self, allowed: frozenset[str]) -> tuple[_Match, dict[str, str]]:
        keywords: dict[str, str] = {}
        alternatives: list[str] = []
        for terminal in self.tables.terminals:
            if terminal.name not in allowed:
                continue
            if terminal.text is not None and not allowed.isdisjoint(terminal.keyword_of):
                keywords[terminal.text] = terminal.name
            else:
                alternatives.append(f"(?P<{terminal.name}>{terminal.pattern})")
        pattern = f"{self._ignored}(?:{'|'.join(alternatives) or '(?!)'})"
        return re.compile(pattern).match, keywords

    def _require_end(self, text: str, position: int, states: list[int]) -> str:
        """Return the terminal for the end of the text; raise `SyntaxFailure` if there is anything else."""
        skipped = self._skip(text, position)
        at = position if skipped is None else skipped.end()
        if at == len(text):
            return END
        every = frozenset(terminal.name for terminal in self.tables.terminals)
        found = self._scanner(every)[0](text, at)
        span = None if found is None else Span(*found.span(found.lastgroup or 0))
        raise SyntaxFailure(at, span, self._accepted(states))

    def _accepted(self, states: list[int]) -> frozenset[str]:
        """Return the terminals that can follow. A reduction can be allowed by the table and its successor not."""
        symbols = self._states[states[-1]].actions
        return frozenset(symbol for symbol in symbols if symbol.isupper() and self._accepts(states, symbol))

    def _accepts(self, states: list[int], symbol: str) -> bool:
        states = list(states)
        while True:
            action: int | _Action | None = self._states[states[-1]].actions.get(symbol)
            if action is None:
                return False
            if isinstance(action, int):
                return True
            size, origin = action[:2]
            if size:
                del states[-size:]
            states.append(self._states[states[-1]].actions[origin])
            if states[-1] == self.tables.end_state and symbol == END:
                return True


def _prepare(reduction: Reduction, builder: type, nesting: frozenset[str]) -> _Action:
    kept: tuple[tuple[int, bool, int], ...] | None = reduction.kept
    is_single = reduction.size == 1 and len(reduction.kept) == 1 and not reduction.absent
    expands = is_single and reduction.kept[0][1]
    if is_single and (expands if reduction.is_inlined else reduction.is_transparent and not expands):
        what = _KEEP
    else:
        what = _LIST if reduction.is_inlined else _CALL
    if kept == tuple((index, False, 0) for index in range(reduction.size)) and not reduction.absent:
        kept = None
    # A transparent rule with one child needs no method.
    is_called = what == _CALL and not (reduction.is_transparent and len(reduction.kept) == 1)
    call = getattr(builder, reduction.name) if is_called else None
    return (
        reduction.size,
        reduction.origin,
        what,
        kept,
        reduction.absent,
        call,
        reduction.is_transparent,
        reduction.name in nesting,
    )


def _select(children: list[Any], kept: tuple[tuple[int, bool, int], ...], absent: int) -> list[Any]:
    """Return the children of a node: without punctuation, and with None for absent optional ones."""
    selected: list[Any] = []
    for index, expands, gap in kept:
        if gap:
            selected += [None] * gap
        if not expands:
            selected.append(children[index])
        elif selected:
            selected += children[index]
        else:
            # A repetition is a rule that contains itself at its start. Its list is extended and not copied.
            selected = children[index]
    if absent:
        selected += [None] * absent
    return selected
