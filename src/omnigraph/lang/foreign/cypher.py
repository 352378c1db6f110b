"""Translation of the common shapes of Cypher to `.gq`."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.lang.foreign.known_names import KnownNames
from omnigraph.lang.foreign.tokens import (
    ForeignToken,
    TokenReader,
    Untranslatable,
    expression,
    literal,
    split,
)

_CLAUSES = ("match", "optional", "where", "return", "order", "skip", "limit", "set", "delete", "detach")


class CypherQuery:
    """One query. `translate` reads it once."""

    def __init__(self, tokens: Sequence[ForeignToken], names: KnownNames) -> None:
        self._reader = TokenReader(tokens)
        self._names = names
        self._types: dict[str, str] = {}
        self._inline: list[str] = []
        self._unnamed = 0

    def translate(self) -> str:
        """Return the query in `.gq`. Raises `Untranslatable` for a shape that is not known."""
        if self._reader.accept("create"):
            return self._create()
        clauses: list[str] = []
        while True:
            if self._reader.accept("optional", "match"):
                clauses.append(f"optional {{ {'  '.join(self._match())} }}")
            elif self._reader.accept("match"):
                clauses += self._match()
            else:
                break
        if not clauses:
            raise Untranslatable("no MATCH")
        if self._reader.accept("set"):
            return self._update()
        if self._reader.accept("detach", "delete") or self._reader.accept("delete"):
            return f"delete {self._only_type(self._reader.name())} where {self._where_column()}"
        return f"match {{ {'  '.join(clauses)} }} {self._return()}"

    def _match(self) -> list[str]:
        patterns = self._reader.until(*_CLAUSES)
        clauses: list[str] = []
        for pattern in split(patterns, ","):
            clauses += self._path(TokenReader(pattern))
        if self._reader.accept("where"):
            condition = self._reader.until(*_CLAUSES)
            clauses.append(expression(condition, _name))
            self._inline.append(expression(condition, _column))
        return clauses

    def _path(self, reader: TokenReader) -> list[str]:
        bindings, edges = list[str](), list[str]()
        left = self._node(reader, bindings)
        while not reader.at_end:
            backward = reader.accept("<-")
            if not backward:
                reader.require("-")
            edge, hops = self._edge(reader)
            forward = reader.accept("->")
            if not forward:
                reader.require("-")
            right = self._node(reader, bindings)
            if forward == backward:
                edges.append(f"{left} <{edge}>{hops} {right}")
            else:
                source, target = (left, right) if forward else (right, left)
                edges.append(f"{source} {edge}{hops} {target}")
            left = right
        return [*bindings, *edges]

    def _node(self, reader: TokenReader, bindings: list[str]) -> str:
        reader.require("(")
        name = reader.name() if reader.is_name() else self._new_name()
        if reader.accept(":"):
            type_name = self._names.node(reader.name())
            self._types[name] = type_name
            inline = ""
            if reader.accept("{"):
                members = _members(reader.until("}"))
                reader.require("}")
                inline = " { " + ", ".join(f"{key}: {value}" for key, value in members) + " }"
                self._inline += [f"{key} = {value}" for key, value in members]
            bindings.append(f"${name}: {type_name}{inline}")
        reader.require(")")
        return f"${name}"

    def _edge(self, reader: TokenReader) -> tuple[str, str]:
        reader.require("[")
        variable = f"${reader.name()}:" if reader.is_name() else ""
        reader.require(":")
        edge = self._names.edge(reader.name())
        hops = ""
        if reader.accept("*"):
            is_open = reader.peek("]")
            low = "1" if is_open or reader.peek("..") else reader.next().text
            high = "" if is_open else low
            if reader.accept(".."):
                high = "" if reader.peek("]") else reader.next().text
            hops = f"{{{low},{high}}}"
        reader.require("]")
        return variable + edge, hops

    def _return(self) -> str:
        reader = self._reader
        reader.require("return")
        distinct = "distinct " if reader.accept("distinct") else ""
        items, aliases = list[str](), set[str]()
        for item in split(reader.until(*_CLAUSES), ","):
            value, *alias = split(item, "as")
            is_whole = len(value) == 1 and value[0].kind == "word"
            text = f"${value[0].text}.*" if is_whole else expression(value, _name, self._everything())
            if alias:
                name = TokenReader(alias[0]).name()
                text += f" as {name}"
                aliases.add(name)
            items.append(text)
        found = f"return {distinct}{{ {', '.join(items)} }}"
        if reader.accept("order", "by"):
            orderings = split(reader.until(*_CLAUSES), ",")
            found += f" order {{ {', '.join(self._ordering(item, aliases) for item in orderings)} }}"
        for word in ("skip", "limit"):
            if reader.accept(word):
                found += f" {word} {literal([reader.next()])}"
        if not reader.at_end:
            raise Untranslatable("more clauses")
        return found

    def _ordering(self, item: list[ForeignToken], aliases: set[str]) -> str:
        direction = ""
        if item and item[-1].matches("asc", "desc", "ascending", "descending"):
            direction = " desc" if item.pop().matches("desc", "descending") else " asc"
        if len(item) == 1 and item[0].text in aliases:
            return item[0].text + direction
        return expression(item, _name, self._everything()) + direction

    def _create(self) -> str:
        statements = []
        for node in split(self._reader.until("return"), ","):
            reader = TokenReader(node)
            reader.require("(")
            if reader.is_name():
                reader.name()
            reader.require(":")
            type_name = self._names.node(reader.name())
            reader.require("{")
            members = _members(reader.until("}"))
            reader.require("}", ")")
            if not reader.at_end:
                raise Untranslatable("a path")
            statements.append(
                f"insert {type_name} {{ " + ", ".join(f"{key}: {value}" for key, value in members) + " }"
            )
        return " ".join(statements)

    def _update(self) -> str:
        assigns, owners = [], set()
        for item in split(self._reader.until("return"), ","):
            reader = TokenReader(item)
            owners.add(reader.name())
            reader.require(".")
            name = reader.name()
            reader.require("=")
            assigns.append(f"{name}: {literal(reader.until())}")
        if len(owners) != 1:
            raise Untranslatable("several nodes")
        owner = owners.pop()
        return f"update {self._only_type(owner)} set {{ {', '.join(assigns)} }} where {self._where_column()}"

    def _where_column(self) -> str:
        """Return the condition of a mutation, which names properties without a variable."""
        if not self._inline or len(self._types) != 1:
            raise Untranslatable("no condition on one node")
        return " and ".join(self._inline)

    def _only_type(self, variable: str) -> str:
        if variable not in self._types:
            raise Untranslatable(variable)
        return self._types[variable]

    def _new_name(self) -> str:
        self._unnamed += 1
        return f"n{self._unnamed}"

    def _everything(self) -> str:
        return f"${next(iter(self._types), '_')}"


def _members(tokens: Sequence[ForeignToken]) -> list[tuple[str, str]]:
    found = []
    for member in split(tokens, ","):
        reader = TokenReader(member)
        name = reader.name()
        reader.require(":")
        found.append((name, literal(reader.until())))
    return found


def _name(owner: str | None, name: str) -> str:
    return f"${name}" if owner is None else f"${owner}.{name}"


def _column(_: str | None, name: str) -> str:
    return name
