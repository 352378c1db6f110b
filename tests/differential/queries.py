"""Random valid reads as text, made with knowledge of the schema so that nearly all of them type-check."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, TypeVar

from hypothesis import strategies as st

from omnigraph.lang.schema import EdgeType, Property, Schema
from omnigraph.lang.types import NUMERIC, PropType, Scalar
from tests.differential.graphs import INTEGERS, UNSUMMABLE, scalar_values
from tests.differential.naive_graph import NaiveGraph

T = TypeVar("T")

WORDS: Final = ("ann", "LEE", "ann lee", "a", "zz", "日本", "an", "", "lees", "élan")
# Queries with operators; only literals and parameters may have them.
OPERATORS: Final = (
    '"ann lee"', "ann AND lee", "an*", "lee NOT ann", "(a OR zz) AND le*^2", "NOT ann", 'lee^3 OR "lee ann"',
)  # fmt: skip
_SYMBOLS: Final = ("=", "!=", "<", "<=", ">", ">=")
_UNORDERED: Final = (Scalar.VECTOR, Scalar.BLOB)
# How deep negations and optional parts stand in each other.
_DEPTH: Final = 3


@dataclass(frozen=True)
class GeneratedRead:
    """A query and the JSON of its parameters."""

    text: str
    params: dict[str, Any]


@dataclass(frozen=True)
class Ref:
    """A property of a variable in scope."""

    variable: str
    name: str
    type: PropType
    on_edge: bool

    @property
    def text(self) -> str:
        return f"${self.variable}.{self.name}"

    @property
    def is_scalar(self) -> bool:
        return not self.type.is_list and self.type.scalar not in _UNORDERED

    @property
    def is_text(self) -> bool:
        return self.is_scalar and self.type.scalar is Scalar.STRING


@dataclass
class _Scope:
    """Variables in sight by name, with their types: nodes, and bound edges."""

    nodes: dict[str, str] = field(default_factory=dict)
    edges: dict[str, str] = field(default_factory=dict)

    def inner(self) -> _Scope:
        return _Scope(dict(self.nodes), dict(self.edges))


class _Author:
    """Writes one query; every decision is a number below another, which `below` chooses."""

    def __init__(self, below: Callable[[int], int], schema: Schema) -> None:
        self.below = below
        self.schema = schema
        self.params: dict[str, Any] = {}
        self.declared: list[str] = []
        self.names = list("pbxaqmczkydefghijlnorstuw")
        self.clauses_left = 7

    # --- choices -----------------------------------------------------------------------------------------

    def one_of(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def chance(self, of: int) -> bool:
        """One time out of so many."""
        return self.below(of) == of - 1

    def refs(self, scope: _Scope, fits: Callable[[Ref], bool] = lambda _: True) -> list[Ref]:
        found: list[Ref] = []
        for variable, name in {**scope.nodes, **scope.edges}.items():
            on_edge = variable in scope.edges
            owner = self.schema.edge(name) if on_edge else self.schema.node(name)
            assert owner is not None
            found.extend(Ref(variable, item.name, item.type, on_edge) for item in owner.properties)
        return [ref for ref in found if fits(ref)]

    def param(self, type_: PropType, value: Any) -> str:
        name = f"v{len(self.params)}"
        nullable = self.chance(4)
        self.declared.append(f"${name}: {_declared(type_)}{'?' if nullable else ''}")
        self.params[name] = None if nullable and self.chance(3) else value
        return f"${name}"

    # --- values ------------------------------------------------------------------------------------------

    def value(self, type_: PropType) -> str:
        """A literal or parameter that a scalar property of the type can be compared with."""
        if type_.scalar is Scalar.DATETIME and self.chance(2):
            return "now()"
        value = self.one_of(scalar_values(PropType(type_.scalar, enum_values=type_.enum_values)))
        if type_.scalar in NUMERIC and self.chance(2):
            # Any number meets any other, whatever their widths.
            type_, value = self.one_of(
                [(PropType(Scalar.F64), 0.5), (PropType(Scalar.F64), 25.0), (type_, value)]
            )
            if self.chance(3):
                type_, value = (
                    PropType(Scalar.I64),
                    self.one_of([item for item in INTEGERS if abs(item) < 2**63]),
                )
        if self.chance(3):
            return self.param(type_, value)
        return _literal(value, type_)

    def list_value(self, type_: PropType) -> str:
        items = [self.one_of(scalar_values(type_)) for _ in range(self.below(4))]
        if self.chance(3):
            return self.param(PropType(type_.scalar, is_list=True, enum_values=type_.enum_values), items)
        return "[" + ", ".join(_literal(item, type_) for item in items) + "]"

    def words(self) -> str:
        found = self.one_of(OPERATORS if self.chance(3) else WORDS)
        return (
            self.param(PropType(Scalar.STRING), found)
            if self.chance(4)
            else json.dumps(found, ensure_ascii=False)
        )

    # --- predicates --------------------------------------------------------------------------------------

    def predicate(self, scope: _Scope, depth: int = 2) -> str:
        if depth and self.chance(2):
            joined = self.one_of([" and ", " or "])
            parts = [self.predicate(scope, depth - 1) for _ in range(2 + self.below(2))]
            return "(" + joined.join(parts) + ")"
        if depth and self.chance(6):
            return f"not ({self.predicate(scope, depth - 1)})"
        return self.comparison(scope)

    def comparison(self, scope: _Scope) -> str:
        if len(scope.nodes) > 1 and self.chance(10):
            same_type = [
                (one, other)
                for one in scope.nodes
                for other in scope.nodes
                if one != other and scope.nodes[one] == scope.nodes[other]
            ]
            if same_type:
                one, other = self.one_of(same_type)
                return f"${one} {self.one_of(['=', '!='])} ${other}"
        if scope.nodes and self.chance(12):
            return f"${self.one_of(list(scope.nodes))} is {self.one_of(['null', 'not null'])}"
        found = self.refs(scope)
        if not found:
            return "true = true"
        ref = self.one_of(found)
        if self.chance(6) or ref.type.scalar in _UNORDERED:
            return f"{ref.text} is {self.one_of(['null', 'not null'])}"
        if ref.type.is_list:
            item = self.value(ref.type.item)
            # A bare variable before `in` would be an edge's end.
            forms = [f"{ref.text} contains {item}", f"not {ref.text} contains {item}"]
            if not item.startswith("$"):
                forms += [f"{item} in {ref.text}", f"{item} not in {ref.text}"]
            return self.one_of(forms)
        return self.scalar_comparison(scope, ref)

    def scalar_comparison(self, scope: _Scope, ref: Ref) -> str:
        forms = [self.plain_comparison, self.plain_comparison, self.membership]
        if ref.is_text and ref.type.enum_values is None:
            forms += [self.text_comparison, self.text_comparison]
        return self.one_of(forms)(scope, ref)

    def plain_comparison(self, scope: _Scope, ref: Ref) -> str:
        def meets(other: Ref) -> bool:
            both_numeric = other.type.scalar in NUMERIC and ref.type.scalar in NUMERIC
            return other.is_scalar and (other.type.scalar is ref.type.scalar or both_numeric)

        others = self.refs(scope, meets)
        right = self.one_of(others).text if self.chance(4) else self.value(ref.type)
        op = self.one_of(_SYMBOLS)
        return f"{right} {op} {ref.text}" if self.chance(8) else f"{ref.text} {op} {right}"

    def membership(self, scope: _Scope, ref: Ref) -> str:
        lists = self.refs(scope, lambda other: other.type.is_list and other.type.scalar is ref.type.scalar)
        items = self.one_of(lists).text if lists and self.chance(3) else self.list_value(ref.type)
        return f"{ref.text} {self.one_of(['in', 'not in'])} {items}"

    def text_comparison(self, scope: _Scope, ref: Ref) -> str:
        del scope
        if ref.on_edge or self.chance(2):
            part = self.value(PropType(Scalar.STRING))
            return f"{ref.text} {self.one_of(['contains', 'starts_with'])} {part}"
        return self.text_search(ref)

    def text_search(self, ref: Ref) -> str:
        call = self.one_of(["search", "match_text", "fuzzy", "fuzzy"])
        edits = self.one_of(["", ", 1", ", 0"]) if call == "fuzzy" else ""
        words = json.dumps(self.one_of(WORDS), ensure_ascii=False) if call == "fuzzy" else self.words()
        return f"{call}({self.searched(ref)}, {words}{edits})"

    def searched(self, ref: Ref, boost: str = "") -> str:
        """The property, sometimes with another one of the same node."""
        if ref.text.endswith(".tenant"):
            return f"[{ref.text}{boost}, {ref.text.replace('.tenant', '.note')}]"
        return ref.text

    # --- clauses -----------------------------------------------------------------------------------------

    def binding(self, scope: _Scope, name: str | None = None) -> str:
        if name is None:
            name = self.names.pop(0)
            scope.nodes[name] = self.one_of([item.name for item in self.schema.nodes])
        type_name = scope.nodes[name]
        node = self.schema.node(type_name)
        assert node is not None
        matched = [item for item in node.properties if item.type.scalar not in _UNORDERED]
        if not matched or not self.chance(4):
            return f"${name}: {type_name}"
        return f"${name}: {type_name} {{ {self.inline(self.one_of(matched))} }}"

    def inline(self, item: Property) -> str:
        wanted = item.type.item if item.type.is_list else item.type
        return f"{item.name}: {self.value(wanted)}"

    def traversal(self, scope: _Scope, *, connected: bool = False) -> str:
        touching = [
            (variable, edge)
            for variable, type_name in scope.nodes.items()
            for edge in self.schema.edges
            if type_name in (edge.source, edge.target)
        ]
        if not touching or (not connected and self.chance(15)):
            edge = self.one_of(self.schema.edges)
            near, far = self.names.pop(0), self.names.pop(0)
            scope.nodes[near], scope.nodes[far] = edge.source, edge.target
            return f"${near} {self.hop(scope, edge)} ${far}"
        variable, edge = self.one_of(touching)
        at_source = scope.nodes[variable] == edge.source
        far_type = edge.target if at_source else edge.source
        hop = self.hop(scope, edge)
        known = [name for name, type_name in scope.nodes.items() if type_name == far_type]
        if self.chance(4):
            far = "_"
        elif known and self.chance(5):
            far = self.one_of(known)
        else:
            far = self.names.pop(0)
            scope.nodes[far] = far_type
        return f"${far} {hop} ${variable}" if self.chance(4) else f"${variable} {hop} ${far}"

    def hop(self, scope: _Scope, edge: EdgeType) -> str:
        name = edge.name[:1].lower() + edge.name[1:]
        if edge.is_loop and self.chance(4):
            name = f"<{name}>"
        if self.chance(4):
            variable = self.names.pop(0)
            scope.edges[variable] = edge.name
            return f"${variable}:{name}"
        if self.chance(3):
            low = 1 + self.below(3)
            return f"{name}{{{low},{low + self.below(4)}}}"
        return name

    def block(self, scope: _Scope, depth: int) -> str:
        """What a negation or an optional part holds; it begins at a variable from outside."""
        lines = [self.predicate(scope) if self.chance(5) else self.traversal(scope, connected=True)]
        if depth and self.chance(2):
            lines.append(self.inner_block(scope, depth))
        elif self.chance(2):
            lines.append(self.clause(scope, depth))
        return "{ " + "  ".join(lines) + " }"

    def clause(self, scope: _Scope, depth: int) -> str:
        self.clauses_left -= 1
        kind = 1 + self.below(13)
        if kind <= 4 or self.clauses_left < 0:
            return self.predicate(scope)
        if kind <= 8 or not depth:
            return self.traversal(scope)
        if kind == 9:
            return self.binding(scope, self.one_of(list(scope.nodes)))
        if kind <= 12:
            return self.inner_block(scope, depth)
        if depth < _DEPTH:
            return f"$_: {self.one_of([item.name for item in self.schema.nodes])}"
        return self.binding(scope) if len(scope.nodes) == 1 else self.predicate(scope)

    def inner_block(self, scope: _Scope, depth: int) -> str:
        inner = scope.inner()
        text = self.block(inner, depth - 1)
        if self.chance(2):
            scope.nodes.update(inner.nodes)
            scope.edges.update(inner.edges)
            return f"optional {text}"
        if self.chance(2):
            # What a negation binds stays inside, so that its names are free for something else.
            self.names[:0] = [
                name
                for name in [*inner.nodes, *inner.edges]
                if name not in scope.nodes and name not in scope.edges
            ]
        return f"not {text}"

    # --- the whole ---------------------------------------------------------------------------------------

    def read(self) -> GeneratedRead:
        scope = _Scope()
        clauses = [self.traversal(scope) if self.chance(8) else self.binding(scope)]
        clauses += [self.clause(scope, _DEPTH) for _ in range(self.below(5))]
        body = self.aggregated(scope) if self.chance(3) else self.plain(scope)
        head = f"query q({', '.join(self.declared)})"
        text = "\n".join([f"{head} {{", "match {", *(f"  {item}" for item in clauses), "}", *body, "}"])
        return GeneratedRead(text + "\n", self.params)

    def plain(self, scope: _Scope) -> list[str]:
        refs = self.refs(scope)
        texts = [ref for ref in refs if ref.is_text and not ref.on_edge]
        columns: dict[str, str] = {}
        for number in range(1 + self.below(4)):
            if refs and not self.chance(3):
                ref = self.one_of(refs)
                columns[ref.text[1:] if self.chance(2) else f"c{number}"] = ref.text
            elif texts and self.chance(4):
                columns[f"c{number}"] = self.text_search(self.one_of(texts))
            elif self.chance(5):
                columns[f"c{number}"] = self.one_of(
                    ['"x"', "-1", "0.5", "[1, 2]", 'date("2020-02-29")', "true"]
                )
            else:
                columns[f"c{number}"] = f"${self.one_of(list(scope.nodes))}"
        distinct = self.chance(4)
        shown = ", ".join(
            text if f"${name}" == text else f"{text} as {name}" for name, text in columns.items()
        )
        lines = [f"return {'distinct ' if distinct else ''}{{ {shown} }}"]
        if not distinct and self.chance(4):
            ranking = self.ranking(scope)
            if ranking:
                return [*lines, *ranking]
        return [*lines, *self.ordering(scope, columns, distinct), *self.page()]

    def ranking(self, scope: _Scope) -> list[str]:
        vectors = self.refs(scope, lambda ref: not ref.on_edge and ref.type.scalar is Scalar.VECTOR)
        texts = self.refs(scope, lambda ref: not ref.on_edge and ref.is_text)
        calls = []
        if vectors:
            ref = self.one_of(vectors)
            calls.append(f"nearest({ref.text}, [{', '.join(['0.5'] * (ref.type.dim or 0))}])")
        if texts:
            calls.append(f"bm25({self.searched(self.one_of(texts), ' ^ 2')}, {self.words()})")
        if len(calls) == 2:
            depth = self.one_of(["", ", depth: 1", ", depth: 3"])
            calls.append(f"rrf({calls[0]}, {calls[1]}{self.one_of(['', ', 5'])}{depth})")
            calls.append(f"fuse({calls[0]} ^ 2, {calls[1]} ^ 0.5{depth})")
        return [f"order {{ {self.one_of(calls)} }}", f"limit {self.one_of([1, 3, 200])}"] if calls else []

    def ordering(self, scope: _Scope, columns: dict[str, str], distinct: bool) -> list[str]:
        sortable = self.refs(scope, lambda ref: ref.is_scalar)
        by_text = {ref.text for ref in sortable} | {f"${name}" for name in scope.nodes}
        keys = [text for text in columns.values() if text in by_text]
        keys += [name for name, text in columns.items() if text in by_text and "." not in name]
        if not distinct:
            keys += [ref.text for ref in sortable]
        return self.order_by(keys)

    def order_by(self, keys: Sequence[str]) -> list[str]:
        if not keys or self.chance(3):
            return []
        chosen = [self.one_of(keys) for _ in range(1 + self.below(3))]
        return ["order { " + ", ".join(key + self.one_of(["", " asc", " desc"]) for key in chosen) + " }"]

    def page(self) -> list[str]:
        lines = []
        if self.chance(4):
            lines.append(f"skip {self.below(5)}")
        if self.chance(3):
            lines.append(f"limit {self.below(9)}")
        return lines

    def aggregated(self, scope: _Scope) -> list[str]:
        keys = self.refs(scope, lambda ref: ref.is_scalar)
        columns: dict[str, str] = {}
        for number in range(self.below(3)):
            node = f"${self.one_of(list(scope.nodes))}"
            columns[f"k{number}"] = self.one_of(keys).text if keys and not self.chance(4) else node
        for number in range(1 + self.below(3)):
            columns[f"f{number}"] = self.aggregate(scope)
        shown = ", ".join(f"{text} as {name}" for name, text in columns.items())
        sortable = [name for name, text in columns.items() if not text.startswith("collect")]
        distinct = "distinct " if self.chance(8) else ""
        return [f"return {distinct}{{ {shown} }}", *self.order_by(sortable), *self.page()]

    def aggregate(self, scope: _Scope) -> str:
        if self.chance(5):
            form = self.one_of(["count(${})", "count(distinct ${})", "collect(${})"])
            return form.format(self.one_of(list(scope.nodes)))
        fits: dict[str, Callable[[Ref], bool]] = {
            "count": lambda _: True,
            "count distinct": lambda ref: ref.is_scalar,
            "sum": lambda ref: ref.type.is_numeric and ref.name not in UNSUMMABLE,
            "avg": lambda ref: ref.type.is_numeric and ref.name not in UNSUMMABLE,
            "min": lambda ref: ref.type.is_numeric or ref.is_text,
            "max": lambda ref: ref.type.is_numeric or ref.is_text,
            "collect": lambda ref: ref.is_scalar,
            "collect distinct": lambda ref: ref.is_scalar,
        }
        texts = self.refs(scope, lambda ref: ref.is_text and not ref.on_edge)
        if texts and self.chance(6):
            return self.one_of(["count({})", "collect({})"]).format(self.text_search(self.one_of(texts)))
        function = self.one_of(list(fits))
        found = self.refs(scope, fits[function])
        name, _, distinct = function.partition(" ")
        if not found:
            return f"count(${self.one_of(list(scope.nodes))})"
        return f"{name}({distinct}{' ' if distinct else ''}{self.one_of(found).text})"


@cache
def _below(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count - 1)


def _declared(type_: PropType) -> str:
    return f"[{type_.scalar.value}]" if type_.is_list else type_.scalar.value


def _literal(value: Any, type_: PropType) -> str:
    if type_.scalar is Scalar.DATE:
        return f'date("{value}")'
    if type_.scalar is Scalar.DATETIME:
        return f'datetime("{value}")'
    return json.dumps(value, ensure_ascii=False)


@st.composite
def reads(draw: st.DrawFn, graph: NaiveGraph) -> GeneratedRead:
    """A read over the graph's schema."""
    return _Author(lambda count: draw(_below(count)), graph.catalog.schema).read()


def seeded_read(schema: Schema, seed: int) -> GeneratedRead:
    """The read that a seed gives, all choices being equally likely."""
    return _Author(random.Random(seed).randrange, schema).read()
