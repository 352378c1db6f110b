"""Canonical layout of queries: which constructs share a line, and where lines break."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from omnigraph.lang.comments import INDENT, Line
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.query_printer import (
    print_assign,
    print_ordering,
    print_param,
    print_predicate,
    print_projection,
    print_traversal,
    split_predicate,
)
from omnigraph.lang.literal_syntax import quote
from omnigraph.lang.scanner import Comment, blank_out, scan
from omnigraph.lang.source import NOWHERE, Span

WIDTH = 100

_WORD = re.compile(r"[a-z]+")
_PAGE = {word: re.compile(rf"\b{word}\s*-?[0-9]+") for word in ("skip", "limit")}


class QueryLayout:
    """Lays out the queries of a text; spans of the AST and of the comments are offsets in it."""

    def __init__(self, text: str, comments: Sequence[Comment]) -> None:
        self._comments = [comment.span.start for comment in comments]
        self._text, self._blocks = _skeleton(text)
        self._opens = sorted(self._blocks)

    def lines(self, file: ast.QueryFile) -> Iterator[Line]:
        """Yield all lines of a file in layout order."""
        for query in file.queries:
            yield from self._query(query)

    # --- queries -----------------------------------------------------------------------------------------

    def _query(self, query: ast.Query) -> Iterator[Line]:
        start = max(0, self._text.rfind("query", 0, query.span.start))
        body = self._block_at(self._text.rfind("{", 0, query.body.span.start))
        yield Line(0, _head(query), Span(start, body.start + 1), opens=True, apart=True)
        match query.body:
            case ast.ReadBody():
                yield from self._read(query.body)
            case ast.MutationBody():
                for statement in query.body.statements:
                    yield from self._statement(statement)
        yield Line(0, ("}",), _last(body), closes=True)

    def _read(self, read: ast.ReadBody) -> Iterator[Line]:
        block = self._block_after(read.span.start)
        yield Line(1, ("match {",), Span(read.span.start, block.start + 1), opens=True)
        for clause in read.clauses:
            yield from self._clause(clause, 2)
        yield Line(1, ("}",), _last(block), closes=True)
        block, word = self._block_after(block.end), self._word_after(block.end)
        columns = [(print_projection(item), item.span) for item in read.projections]
        head = "return distinct" if read.distinct else "return"
        yield from self._block(1, head, columns, block, Span(word, block.end))
        end = block.end
        if read.order:
            block, word = self._block_after(end), self._word_after(end)
            items = [(print_ordering(item), item.span) for item in read.order]
            yield from self._block(1, "order", items, block, Span(word, block.end))
            end = block.end
        for word_, count in (("skip", read.skip), ("limit", read.limit)):
            if count is not None:
                found = _PAGE[word_].search(self._text, end)
                yield Line(1, (f"{word_} {count}",), Span(*found.span()) if found else NOWHERE)

    # --- clauses -----------------------------------------------------------------------------------------

    def _clause(self, clause: ast.Clause, depth: int) -> Iterator[Line]:
        match clause:
            case ast.Traversal():
                yield Line(depth, (print_traversal(clause),), clause.span)
            case ast.Filter():
                yield Line(depth, _rows("", clause.predicate, depth), clause.span)
            case ast.Binding():
                head = f"${clause.variable.name}: {clause.type_name}"
                if clause.matches:
                    items = [(print_assign(item), item.span) for item in clause.matches]
                    block = self._block_after(clause.type_span.end)
                    yield from self._block(depth, head, items, block, clause.span)
                else:
                    yield Line(depth, (head,), clause.span)
            case ast.Negation() | ast.Optional():
                yield from self._group(clause, depth)

    def _group(self, group: ast.Negation | ast.Optional, depth: int) -> Iterator[Line]:
        word = "not" if isinstance(group, ast.Negation) else "optional"
        block = self._block_after(group.span.start)
        inner = [line for clause in group.clauses for line in self._clause(clause, depth + 1)]
        if len(inner) == 1 and len(inner[0].rows) == 1 and not self._commented(block):
            row = f"{word} {{ {inner[0].rows[0]} }}"
            if _fits(row, depth):
                yield Line(depth, (row,), group.span)
                return
        yield Line(depth, (f"{word} {{",), Span(group.span.start, block.start + 1), opens=True)
        yield from inner
        yield Line(depth, ("}",), _last(block), closes=True)

    # --- mutations ---------------------------------------------------------------------------------------

    def _statement(self, statement: ast.Statement) -> Iterator[Line]:
        name = statement.type_name
        if isinstance(statement, ast.Delete):
            yield Line(1, _rows(f"delete {name} where ", statement.where, 1), statement.span)
            return
        head, where = f"insert {name}", None
        if isinstance(statement, ast.Update):
            head, where = f"update {name} set", statement.where
        items = [(print_assign(item), item.span) for item in statement.assigns]
        block = self._block_after(statement.type_span.end)
        yield from self._block(1, head, items, block, statement.span, where)

    # --- blocks ------------------------------------------------------------------------------------------

    def _block(
        self,
        depth: int,
        head: str,
        items: Sequence[tuple[str, Span]],
        block: Span,
        span: Span,
        where: ast.Predicate | None = None,
    ) -> Iterator[Line]:
        """Lay out a list in braces: on one line if it fits and contains no comment, else one item per line."""
        tail = "" if where is None else f" where {print_predicate(where)}"
        row = f"{head} {{ {', '.join(text for text, _ in items)} }}{tail}"
        if _fits(row, depth) and not self._commented(block):
            yield Line(depth, (row,), span)
            return
        yield Line(depth, (f"{head} {{",), Span(span.start, block.start + 1), opens=True)
        for number, (text, place) in enumerate(items, start=1):
            yield Line(depth + 1, (text if number == len(items) else f"{text},",), place)
        rows = ("}",) if where is None else _rows("} where ", where, depth)
        yield Line(depth, rows, Span(_last(block).start, span.end), closes=True)

    def _commented(self, block: Span) -> bool:
        place = bisect_left(self._comments, block.start)
        return place < len(self._comments) and self._comments[place] < block.end

    def _block_after(self, offset: int) -> Span:
        place = bisect_left(self._opens, offset)
        return self._block_at(self._opens[place]) if place < len(self._opens) else NOWHERE

    def _block_at(self, offset: int) -> Span:
        return Span(offset, self._blocks[offset]) if offset in self._blocks else NOWHERE

    def _word_after(self, offset: int) -> int:
        found = _WORD.search(self._text, offset)
        return found.start() if found else 0


def _head(query: ast.Query) -> tuple[str, ...]:
    params = [print_param(param) for param in query.params]
    notes = [
        f"{INDENT}@{name}({quote(text)})"
        for name, text in (("description", query.description), ("instruction", query.instruction))
        if text is not None
    ]
    tail = "" if notes else " {"
    row = f"query {query.name}({', '.join(params)}){tail}"
    rows = [row]
    if params and not _fits(row, 0):
        *others, last = params
        rows = [
            f"query {query.name}(",
            *(f"{INDENT}{param}," for param in others),
            f"{INDENT}{last}",
            f"){tail}",
        ]
    return (*rows, *notes, "{") if notes else tuple(rows)


def _rows(lead: str, predicate: ast.Predicate, depth: int) -> tuple[str, ...]:
    """Lay out a predicate after `lead`: on one row if it fits, else one row per operand of the outer operator."""
    row = lead + print_predicate(predicate)
    if _fits(row, depth):
        return (row,)
    first, *rest = split_predicate(predicate)
    return (lead + first, *(INDENT + part for part in rest))


def _fits(row: str, depth: int) -> bool:
    return len(INDENT) * depth + len(row) <= WIDTH


def _last(block: Span) -> Span:
    """Return the span of the closing brace of a block."""
    return Span(max(block.start, block.end - 1), block.end)


def _skeleton(text: str) -> tuple[str, dict[int, int]]:
    """Return the text with strings and comments blanked out, and the end of each brace block by its start."""
    pieces, done = [], 0
    blocks: dict[int, int] = {}
    opened: list[int] = []
    for lexeme in scan(text):
        if lexeme.kind in ("line", "block", "string"):
            pieces += [text[done : lexeme.start], blank_out(text[lexeme.start : lexeme.end])]
            done = lexeme.end
        elif text[lexeme.start] == "{":
            opened.append(lexeme.start)
        elif text[lexeme.start] == "}" and opened:
            blocks[opened.pop()] = lexeme.end
    return "".join([*pieces, text[done:]]), blocks
