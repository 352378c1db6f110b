"""Tokens of Cypher and SQL, and the translation of their expressions to `.gq`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

TokenKind: TypeAlias = Literal["word", "string", "number", "symbol"]

_TOKEN = re.compile(
    r"""\s+|--[^\n]*+|//[^\n]*+|/\*.*?\*/
    |(?P<string>'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.)*+")
    |(?P<word>`[^`]++`|[A-Za-z_][A-Za-z0-9_]*+)
    |(?P<number>[0-9]+\.[0-9]+|[0-9]++)
    |(?P<symbol><>|<=|>=|!=|==|\.\.|->|<-|[-()\[\]{}<>=,:;.*|+%/])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"''|\\(.)", re.DOTALL)
_AGGREGATES = frozenset({"count", "sum", "avg", "min", "max", "collect"})
_WORDS = frozenset({"and", "or", "not", "in", "is", "null", "true", "false", "contains", "distinct"})
_SYMBOLS: Final = {"<>": "!=", "==": "=", **{symbol: symbol for symbol in ("=", "!=", "<", "<=", ">", ">=")}}
_NO_SPACE_BEFORE = re.compile(r" (?=[),\]])|(?<=[(\[]) ")


class Untranslatable(Exception):
    """A text of a shape that is not known. The message of the `.gq` parser is shown without an equivalent."""


@dataclass(frozen=True, slots=True)
class ForeignToken:
    """A token. `text` of a string or a quoted name is its value."""

    kind: TokenKind
    text: str

    def matches(self, *words: str) -> bool:
        """Return whether this is one of the words, in any case, or one of the symbols."""
        return self.kind in ("word", "symbol") and self.text.lower() in words


class TokenReader:
    """Reads tokens in order."""

    def __init__(self, tokens: Sequence[ForeignToken]) -> None:
        self._tokens = tokens
        self._place = 0

    @property
    def at_end(self) -> bool:
        """Whether all tokens have been read."""
        return self._place >= len(self._tokens)

    def peek(self, *words: str) -> bool:
        """Return whether the next tokens are these words or symbols."""
        ahead = self._tokens[self._place : self._place + len(words)]
        return len(ahead) == len(words) and all(
            token.matches(word) for token, word in zip(ahead, words, strict=True)
        )

    def accept(self, *words: str) -> bool:
        """Read these words or symbols if they come next."""
        if not self.peek(*words):
            return False
        self._place += len(words)
        return True

    def require(self, *words: str) -> None:
        """Read these words or symbols. Raises `Untranslatable` if something else comes next."""
        if not self.accept(*words):
            raise Untranslatable(words)

    def name(self) -> str:
        """Read a name."""
        token = self.next()
        if token.kind != "word":
            raise Untranslatable(token)
        return token.text

    def is_name(self) -> bool:
        """Return whether a word comes next."""
        return not self.at_end and self._tokens[self._place].kind == "word"

    def next(self) -> ForeignToken:
        """Read a token."""
        if self.at_end:
            raise Untranslatable("end")
        self._place += 1
        return self._tokens[self._place - 1]

    def until(self, *words: str) -> list[ForeignToken]:
        """Read the tokens before one of the words, outside of brackets, or before the end."""
        depth, start = 0, self._place
        while not self.at_end:
            token = self._tokens[self._place]
            if depth == 0 and token.matches(*words):
                break
            if token.kind == "symbol":
                depth += (token.text in "([{") - (token.text in ")]}")
            self._place += 1
        return list(self._tokens[start : self._place])


def read_tokens(text: str) -> list[ForeignToken]:
    """Return the tokens of a text without a final semicolon. Raises `Untranslatable` for an unknown character.

    >>> [token.text for token in read_tokens("WHERE p.name = 'it''s';")]
    ['WHERE', 'p', '.', 'name', '=', "it's"]
    """
    found: list[ForeignToken] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Untranslatable(text[position])
        position = match.end()
        value = match[0]
        if match.lastgroup == "string":
            found.append(ForeignToken("string", _ESCAPE.sub(lambda escape: escape[1] or "'", value[1:-1])))
        elif match.lastgroup == "word":
            found.append(ForeignToken("word", value.strip("`")))
        elif match.lastgroup is not None:
            found.append(ForeignToken("number" if match.lastgroup == "number" else "symbol", value))
    while found and found[-1].matches(";"):
        found.pop()
    return found


def split(tokens: Iterable[ForeignToken], separator: str) -> list[list[ForeignToken]]:
    """Split tokens at a word or symbol outside of brackets."""
    parts: list[list[ForeignToken]] = [[]]
    depth = 0
    for token in tokens:
        if depth == 0 and token.matches(separator):
            parts.append([])
            continue
        if token.kind == "symbol":
            depth += (token.text in "([{") - (token.text in ")]}")
        parts[-1].append(token)
    return parts


def literal(tokens: Sequence[ForeignToken]) -> str:
    """Return a string, number, boolean or null as in `.gq`."""
    sign = "-" if len(tokens) == 2 and tokens[0].matches("-") and tokens[1].kind == "number" else ""
    if len(tokens) != 1 + len(sign):
        raise Untranslatable(tokens)
    token = tokens[-1]
    if token.kind == "string":
        return json.dumps(token.text, ensure_ascii=False)
    if token.kind == "number":
        return sign + token.text
    if token.matches("true", "false", "null"):
        return token.text.lower()
    raise Untranslatable(token)


def expression(
    tokens: Sequence[ForeignToken], name: Callable[[str | None, str], str], everything: str = ""
) -> str:
    """Return an expression or a condition as in `.gq`.

    `name` translates ``a.b`` from its two parts, and ``b`` alone from None and ``b``. `everything` is what
    ``count(*)`` counts.
    """
    reader, parts, closing = TokenReader(tokens), list[str](), list[str]()
    while not reader.at_end:
        token = reader.next()
        after_in = bool(parts) and parts[-1] == "in"
        if token.kind in ("string", "number"):
            parts.append(literal([token]))
        elif token.matches("starts") and reader.accept("with"):
            parts.append("starts_with")
        elif token.matches("like"):
            parts += _like(reader.next())
        elif token.matches(*_AGGREGATES) and reader.accept("("):
            inside = reader.until(")")
            reader.require(")")
            parts.append(f"{token.text.lower()}({_aggregated(inside, name, everything)})")
        elif token.matches("between", "case", "exists"):
            raise Untranslatable(token)
        elif token.matches(*_WORDS):
            parts.append(token.text.lower())
        elif token.kind == "word":
            parts.append(name(token.text, reader.name()) if reader.accept(".") else name(None, token.text))
        elif token.text in ("(", "["):
            parts.append("[" if after_in else token.text)
            closing.append("]" if parts[-1] == "[" else ")")
        elif token.text in (")", "]") and closing:
            parts.append(closing.pop())
        elif token.text == "-" and not reader.at_end:
            parts.append(literal([token, reader.next()]))
        elif token.text == ",":
            parts.append(",")
        else:
            parts.append(_symbol(token))
    return _NO_SPACE_BEFORE.sub("", " ".join(parts))


def _aggregated(
    tokens: Sequence[ForeignToken], name: Callable[[str | None, str], str], everything: str
) -> str:
    is_everything = len(tokens) == 1 and tokens[0].matches("*")
    return everything if is_everything else expression(tokens, name)


def _symbol(token: ForeignToken) -> str:
    if token.text not in _SYMBOLS:
        raise Untranslatable(token)
    return _SYMBOLS[token.text]


def _like(pattern: ForeignToken) -> list[str]:
    """Translate the pattern of LIKE, if it has wildcards at its ends only."""
    text = pattern.text.strip("%")
    if pattern.kind != "string" or not text or "%" in text or "_" in text or not pattern.text.endswith("%"):
        raise Untranslatable(pattern)
    operator = "contains" if pattern.text.startswith("%") else "starts_with"
    return [operator, json.dumps(text, ensure_ascii=False)]
