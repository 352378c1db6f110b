"""The compiled schema: types, properties and constraints after interfaces are applied and all rules checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from omnigraph.lang.stop_word_lists import stop_words
from omnigraph.lang.types import PropType

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

TypeKind: TypeAlias = Literal["interface", "node", "edge"]
LiteralValue: TypeAlias = str | int | float | bool
Metric: TypeAlias = Literal["l2", "cosine", "dot"]
VectorIndexKind: TypeAlias = Literal["ivf_rq", "ivf_pq", "hnsw"]
LANGUAGES = (
    *(
        "arabic",
        "armenian",
        "basque",
        "catalan",
        "danish",
        "dutch",
        "english",
        "esperanto",
        "estonian",
        "finnish",
    ),
    *("french", "german", "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian"),
    *("nepali", "norwegian", "portuguese", "romanian", "russian", "serbian", "spanish", "swedish", "tamil"),
    *("turkish", "yiddish"),
)
METRICS: tuple[Metric, ...] = ("l2", "cosine", "dot")
VECTOR_INDEX_KINDS: tuple[VectorIndexKind, ...] = ("ivf_rq", "ivf_pq", "hnsw")


@dataclass(frozen=True, slots=True)
class Annotation:
    """An accepted annotation. An identifier argument is stored as its text."""

    name: str
    value: LiteralValue | None = None
    kwargs: tuple[tuple[str, LiteralValue], ...] = ()


@dataclass(frozen=True, slots=True)
class Key:
    """Columns that determine the id of a node or edge; the endpoints of an edge are ``src`` and ``dst``."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unique:
    """Columns whose values are unique as a tuple; a tuple with a null member is exempt."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """Columns to build a lookup index on; an index never changes results."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """Inclusive numeric bounds; None leaves a side unbounded."""

    property: str
    min: int | float | None
    max: int | float | None


@dataclass(frozen=True, slots=True)
class Check:
    """A pattern that a String property must contain a match of."""

    property: str
    pattern: str


Constraint: TypeAlias = Key | Unique | Index | Range | Check


@dataclass(frozen=True, slots=True)
class Embed:
    """Marks a vector property as the embedding of a String property of the same node.

    With a `provider`, writes compute the vectors.
    """

    source: str
    model: str | None = None
    provider: str | None = None

    @property
    def recorded_model(self) -> str:
        """The model that the records of computed vectors name."""
        return self.model or self.provider or ""


@dataclass(frozen=True, slots=True)
class EmbeddedProperty:
    """A vector property that writes compute, and the property that records the text and model of each vector."""

    vector: Property
    record: str
    embed: Embed

    @property
    def name(self) -> str:
        """The name of the vector property."""
        return self.vector.name


def embedding_record_name(vector: str) -> str:
    """Return the name of the property that records how the vectors of a property were computed.

    >>> embedding_record_name("vector")
    'vector_embedded'
    """
    return f"{vector}_embedded"


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """How the vectors of a property are compared, and the kind of index of a large table.

    The metric also holds for a property without an index.
    """

    kind: VectorIndexKind = "ivf_rq"
    metric: Metric = "l2"


@dataclass(frozen=True, slots=True)
class TextAnalysis:
    """How the words of a String property become tokens, for full-text search.

    `language` is None without stemming. `stop_words` are left out; `ngram` is the length of character n-grams, 0
    for whole words. The default only folds case: the analysis of a property without ``@text``.
    """

    language: str | None = None
    stop_words: tuple[str, ...] = ()
    ascii_fold: bool = False
    ngram: int = 0


SIMPLE_TEXT = TextAnalysis()


@dataclass(frozen=True, slots=True)
class Cardinality:
    """Minimum and maximum number of out-edges per source node."""

    min: int = 0
    max: int | None = None

    @property
    def is_default(self) -> bool:
        """Whether any number of out-edges is allowed."""
        return self.min == 0 and self.max is None


@dataclass(frozen=True)
class Property:
    """A property with its annotations, declared or inherited from an interface.

    `inherited` is true when the node does not declare the property itself.
    """

    name: str
    type: PropType
    annotations: tuple[Annotation, ...] = ()
    inherited: bool = False

    def annotation(self, name: str) -> Annotation | None:
        """Return the first annotation of that name, or None."""
        return next((item for item in self.annotations if item.name == name), None)

    @cached_property
    def embed(self) -> Embed | None:
        """Source property and model of an embedding; None for other properties."""
        annotation = self.annotation("embed")
        if annotation is None:
            return None
        options = dict(annotation.kwargs)
        model, provider = options.get("model"), options.get("provider")
        return Embed(
            str(annotation.value),
            None if model is None else str(model),
            None if provider is None else str(provider),
        )

    @cached_property
    def vector_index(self) -> VectorIndex:
        """The options of the index of a vector property, with the defaults of those that are not declared."""
        annotation = self.annotation("index")
        options = {} if annotation is None else dict(annotation.kwargs)
        kind = cast("VectorIndexKind", options.get("kind", "ivf_rq"))
        return VectorIndex(kind, cast("Metric", options.get("metric", "l2")))

    @cached_property
    def text_analysis(self) -> TextAnalysis:
        """How full-text search splits the text into tokens. ``@text`` without options is English."""
        annotation = self.annotation("text")
        if annotation is None or annotation.value == "simple":
            return SIMPLE_TEXT
        options = dict(annotation.kwargs)
        language = str(options.get("language", "english"))
        given = options.get("stop_words", True)
        words = stop_words(language) if given is True else () if given is False else str(given).split()
        return TextAnalysis(
            language if options.get("stem", True) else None,
            tuple(sorted(set(words))),
            bool(options.get("ascii_fold", True)),
            int(options.get("ngram", 0)),
        )

    @property
    def text_positions(self) -> bool:
        """Whether the index of the property has the positions of tokens, which phrases use."""
        annotation = self.annotation("text")
        return annotation is not None and bool(dict(annotation.kwargs).get("with_position", False))


class PickledByFields:
    """Pickles dataclass fields only; cached properties are computed again after unpickling."""

    def __getstate__(self) -> dict[str, object]:
        return {item.name: getattr(self, item.name) for item in fields(cast("DataclassInstance", self))}


@dataclass(frozen=True)
class _Entity(PickledByFields):
    name: str
    properties: tuple[Property, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    annotations: tuple[Annotation, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, Property]:
        """Properties by name."""
        return MappingProxyType({item.name: item for item in self.properties})

    def annotation(self, name: str) -> Annotation | None:
        """Return the first annotation of that name on the type itself, or None."""
        return next((item for item in self.annotations if item.name == name), None)

    @cached_property
    def effective_constraints(self) -> tuple[Constraint, ...]:
        """Constraints of property annotations, each over one column, and body constraints, without duplicates."""
        classes: dict[str, type[Key | Unique | Index]] = {"key": Key, "unique": Unique, "index": Index}
        constraints: dict[Constraint, None] = {}
        for prop in self.properties:
            for item in prop.annotations:
                if item.name in classes:
                    constraints[classes[item.name]((prop.name,))] = None
        for constraint in self.constraints:
            constraints[constraint] = None
        return tuple(constraints)

    @cached_property
    def key(self) -> tuple[str, ...] | None:
        """Key columns in source order, or None for a type without a key."""
        return next((item.columns for item in self.effective_constraints if isinstance(item, Key)), None)

    @cached_property
    def uniques(self) -> tuple[tuple[str, ...], ...]:
        """Column tuples of the unique constraints, without the key."""
        return tuple(item.columns for item in self.effective_constraints if isinstance(item, Unique))

    @cached_property
    def indexes(self) -> tuple[tuple[str, ...], ...]:
        """Column tuples to index; a key implies an index."""
        indexed = (item for item in self.effective_constraints if isinstance(item, Index | Key))
        return tuple(dict.fromkeys(item.columns for item in indexed))


@dataclass(frozen=True)
class InterfaceType(_Entity):
    """An interface that node types implement; it has no rows and cannot be queried."""

    kind: TypeKind = field(default="interface", init=False)


@dataclass(frozen=True)
class NodeType(_Entity):
    """A node type; its properties include the inherited ones and are sorted by name."""

    implements: tuple[str, ...] = ()
    kind: TypeKind = field(default="node", init=False)

    @cached_property
    def embedded(self) -> tuple[EmbeddedProperty, ...]:
        """The vector properties that writes compute."""
        return tuple(
            EmbeddedProperty(prop, embedding_record_name(prop.name), prop.embed)
            for prop in self.properties
            if prop.embed is not None and prop.embed.provider is not None
        )


@dataclass(frozen=True)
class EdgeType(_Entity):
    """An edge type between two node types; its properties are sorted by name."""

    source: str = ""
    target: str = ""
    cardinality: Cardinality = Cardinality()
    kind: TypeKind = field(default="edge", init=False)

    @property
    def is_loop(self) -> bool:
        """Whether both endpoints have the same type, so that types do not determine the direction."""
        return self.source == self.target


@dataclass(frozen=True)
class Schema(PickledByFields):
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
        """Return the node type of exactly that name, or None."""
        return self._nodes.get(name)

    def edge(self, name: str) -> EdgeType | None:
        """Return the edge type of that name, or None; edge names are case-insensitive."""
        return self._edges.get(name) or self._folded_edges.get(name.lower())

    def edges_of(self, node: str) -> Iterator[EdgeType]:
        """Yield every edge type with the node type as source or target."""
        return (item for item in self.edges if node in (item.source, item.target))


AnyType: TypeAlias = InterfaceType | NodeType | EdgeType


def all_types(schema: Schema) -> Iterator[AnyType]:
    """Yield interfaces, nodes and edges, each sorted by name: the order of identities and of migration steps."""
    groups: tuple[tuple[AnyType, ...], ...] = (schema.interfaces, schema.nodes, schema.edges)
    for group in groups:
        yield from sorted(group, key=lambda item: item.name)
