"""Translation of the common shapes of SQL to `.gq`: statements about one table."""

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

_CLAUSES = ("from", "where", "group", "order", "limit", "offset", "having", "join", "union")


class SqlStatement:
    """One statement. `translate` reads it once."""

    def __init__(self, tokens: Sequence[ForeignToken], names: KnownNames) -> None:
        self._reader = TokenReader(tokens)
        self._names = names
        self._variable = ""
        self._aliases: set[str] = set()

    def translate(self) -> str:
        """Return the statement in `.gq`. Raises `Untranslatable` for a shape that is not known."""
        reader = self._reader
        if reader.accept("select"):
            return self._select()
        if reader.accept("insert", "into"):
            return self._insert()
        if reader.accept("update"):
            return self._update()
        reader.require("delete", "from")
        return f"delete {self._names.any_type(reader.name())} where {self._where()}"

    def _select(self) -> str:
        reader = self._reader
        distinct = "distinct " if reader.accept("distinct") else ""
        columns = split(reader.until(*_CLAUSES), ",")
        reader.require("from")
        label = reader.name()
        type_name = self._names.node(label)
        reader.accept("as")
        named = reader.is_name() and not any(reader.peek(word) for word in _CLAUSES)
        self._variable = reader.name() if named else type_name[0].lower()
        clauses = [f"${self._variable}: {type_name}"]
        if reader.accept("where"):
            clauses.append(expression(reader.until(*_CLAUSES), self._name))
        if reader.accept("group", "by"):
            # Columns beside aggregates are the groups.
            reader.until(*_CLAUSES)
        items = [self._item(column) for column in columns]
        found = f"match {{ {'  '.join(clauses)} }} return {distinct}{{ {', '.join(items)} }}"
        if reader.accept("order", "by"):
            orderings = split(reader.until(*_CLAUSES), ",")
            found += f" order {{ {', '.join(map(self._ordering, orderings))} }}"
        limit = f" limit {literal([reader.next()])}" if reader.accept("limit") else ""
        skip = f" skip {literal([reader.next()])}" if reader.accept("offset") else ""
        if not reader.at_end:
            raise Untranslatable("more clauses")
        return found + skip + limit

    def _item(self, tokens: list[ForeignToken]) -> str:
        if tokens and tokens[-1].matches("*") and len(tokens) in (1, 3):
            return f"${self._variable}.*"
        value, *alias = split(tokens, "as")
        text = expression(value, self._name, f"${self._variable}")
        if not alias:
            return text
        name = TokenReader(alias[0]).name()
        self._aliases.add(name)
        return f"{text} as {name}"

    def _ordering(self, item: list[ForeignToken]) -> str:
        direction = f" {item.pop().text.lower()}" if item and item[-1].matches("asc", "desc") else ""
        if len(item) == 1 and item[0].text in self._aliases:
            return item[0].text + direction
        return expression(item, self._name, f"${self._variable}") + direction

    def _insert(self) -> str:
        reader = self._reader
        type_name = self._names.any_type(reader.name())
        reader.require("(")
        columns = [TokenReader(part).name() for part in split(reader.until(")"), ",")]
        reader.require(")", "values")
        statements = []
        for row in split(reader.until(), ","):
            values = [literal(part) for part in split(row[1:-1], ",")]
            if len(values) != len(columns):
                raise Untranslatable(row)
            members = ", ".join(f"{name}: {value}" for name, value in zip(columns, values, strict=True))
            statements.append(f"insert {type_name} {{ {members} }}")
        return " ".join(statements)

    def _update(self) -> str:
        reader = self._reader
        type_name = self._names.any_type(reader.name())
        reader.require("set")
        assigns = []
        for part in split(reader.until("where"), ","):
            member = TokenReader(part)
            name = member.name()
            member.require("=")
            assigns.append(f"{name}: {literal(member.until())}")
        return f"update {type_name} set {{ {', '.join(assigns)} }} where {self._where()}"

    def _where(self) -> str:
        self._reader.require("where")
        return expression(self._reader.until(), lambda _, name: name)

    def _name(self, _: str | None, name: str) -> str:
        return f"${self._variable}.{name}"
