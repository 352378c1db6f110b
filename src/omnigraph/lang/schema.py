"""The compiled schema: what a `.pg` text means once interfaces are applied and every rule is checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from omnigraph.lang.types import PropType

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

TypeKind: TypeAlias = Literal["interface", "node", "edge"]
LiteralValue: TypeAlias = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation that was accepted; an identifier argument has become its text."""

    name: str
    value: LiteralValue | None = None
    kwargs: tuple[tuple[str, LiteralValue], ...] = ()


@dataclass(frozen=True, slots=True)
class Key:
    """The identity of a node."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unique:
    """No two rows share this tuple; a tuple with a null member is exempt."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """A hint to build a lookup index; never changes results."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """Inclusive numeric bounds, either side open."""

    property: str
    min: int | float | None
    max: int | float | None


@dataclass(frozen=True, slots=True)
class Check:
    """A String must contain a match of the pattern."""

    property: str
    pattern: str


Constraint: TypeAlias = Key | Unique | Index | Range | Check


@dataclass(frozen=True, slots=True)
class Embed:
    """Marks a vector property as the embedding of a String property of the same node."""

    source: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Cardinality:
    """How many out-edges a source node may have."""

    min: int = 0
    max: int | None = None

    @property
    def is_default(self) -> bool:
        """Whether it allows anything."""
        return self.min == 0 and self.max is None


@dataclass(frozen=True)
class Property:
    """A property with the annotations it carries, its own or its interface's.

    `inherited` is true when the node does not declare the property itself.
    """

    name: str
    type: PropType
    annotations: tuple[Annotation, ...] = ()
    inherited: bool = False

    def annotation(self, name: str) -> Annotation | None:
        """The first annotation of that name."""
        return next((item for item in self.annotations if item.name == name), None)

    @cached_property
    def embed(self) -> Embed | None:
        """What the property is the embedding of, if it is one."""
        found = self.annotation("embed")
        if found is None:
            return None
        model = dict(found.kwargs).get("model")
        return Embed(str(found.value), None if model is None else str(model))


class Declared:
    """Pickles to what was declared: derived views are made again where they are needed."""

    def __getstate__(self) -> dict[str, object]:
        return {item.name: getattr(self, item.name) for item in fields(cast("DataclassInstance", self))}


@dataclass(frozen=True)
class _Entity(Declared):
    name: str
    properties: tuple[Property, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    annotations: tuple[Annotation, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, Property]:
        """Properties by name."""
        return MappingProxyType({item.name: item for item in self.properties})

    def annotation(self, name: str) -> Annotation | None:
        """The first annotation of that name on the type itself."""
        return next((item for item in self.annotations if item.name == name), None)

    @cached_property
    def effective_constraints(self) -> tuple[Constraint, ...]:
        """Body constraints and the one-column ones that property annotations stand for, without repeats."""
        makers: dict[str, type[Key | Unique | Index]] = {"key": Key, "unique": Unique, "index": Index}
        found: dict[Constraint, None] = {}
        for prop in self.properties:
            for item in prop.annotations:
                if item.name in makers:
                    found[makers[item.name]((prop.name,))] = None
        for constraint in self.constraints:
            found[constraint] = None
        return tuple(found)

    @cached_property
    def uniques(self) -> tuple[tuple[str, ...], ...]:
        """Column tuples that must be unique, the key not among them."""
        return tuple(item.columns for item in self.effective_constraints if isinstance(item, Unique))

    @cached_property
    def indexes(self) -> tuple[tuple[str, ...], ...]:
        """Column tuples that an index is wanted for; a key implies one."""
        wanted = (item for item in self.effective_constraints if isinstance(item, Index | Key))
        return tuple(dict.fromkeys(item.columns for item in wanted))


@dataclass(frozen=True)
class InterfaceType(_Entity):
    """A contract that nodes implement; not queryable."""

    kind: TypeKind = field(default="interface", init=False)


@dataclass(frozen=True)
class NodeType(_Entity):
    """A node type; its properties include those its interfaces gave it, sorted by name."""

    implements: tuple[str, ...] = ()
    kind: TypeKind = field(default="node", init=False)

    @cached_property
    def key(self) -> tuple[str, ...] | None:
        """The key columns as the schema wrote them, or None for a keyless node."""
        return next((item.columns for item in self.effective_constraints if isinstance(item, Key)), None)


@dataclass(frozen=True)
class EdgeType(_Entity):
    """An edge type between two node types; its properties are sorted by name."""

    source: str = ""
    target: str = ""
    cardinality: Cardinality = Cardinality()
    kind: TypeKind = field(default="edge", init=False)

    @property
    def is_loop(self) -> bool:
        """Whether both ends are of one type, so that direction cannot follow from the types."""
        return self.source == self.target


@dataclass(frozen=True)
class Schema(Declared):
    """All types, each group sorted by name."""

    interfaces: tuple[InterfaceType, ...] = ()
    nodes: tuple[NodeType, ...] = ()
    edges: tuple[EdgeType, ...] = ()

    @cached_property
    def _nodes(self) -> dict[str, NodeType]:
        return {item.name: item for item in self.nodes}

    @cached_property
    def _edges(self) -> dict[str, EdgeType]:
        return {item.name: item for item in self.edges}

    @cached_property
    def _folded_edges(self) -> dict[str, EdgeType]:
        return {item.name.lower(): item for item in self.edges}

    def node(self, name: str) -> NodeType | None:
        """The node type of exactly that name."""
        return self._nodes.get(name)

    def edge(self, name: str) -> EdgeType | None:
        """The edge type of that name, whatever its case: names that agree when folded cannot coexist."""
        return self._edges.get(name) or self._folded_edges.get(name.lower())

    def edges_of(self, node: str) -> Iterator[EdgeType]:
        """Every edge type that starts or ends at a node type."""
        return (item for item in self.edges if node in (item.source, item.target))
