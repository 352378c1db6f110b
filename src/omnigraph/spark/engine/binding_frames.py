"""Rows of bindings as a DataFrame: which of its columns holds which property of which variable.

Spark tells names apart by their letters alone, not by case, and a table may be in one query many times. So columns
are numbered, every binding has numbers of its own, and what they mean is written down here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.lang import ir

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# For those who pass them on and have no business with Spark itself.
Frame: TypeAlias = "DataFrame"
Session: TypeAlias = "SparkSession"
# A variable and a property of it; the property ``id`` is the bound node or edge itself.
Place: TypeAlias = tuple[str, str]
ID = "id"


@dataclass(frozen=True)
class Rows:
    """A frame of bindings and the name of the column of each place.

    A row is one combination of ids: no two have the same in all their variables. Columns that no place has are left
    to Spark, which does not compute what nobody asks for.
    """

    frame: DataFrame
    columns: Mapping[Place, str]

    @property
    def variables(self) -> frozenset[str]:
        """What is bound."""
        return frozenset(variable for variable, name in self.columns if name == ID)

    def places(self, variables: Collection[str]) -> dict[Place, str]:
        """The columns of some variables."""
        return {place: name for place, name in self.columns.items() if place[0] in variables}

    def with_frame(self, frame: DataFrame, more: Mapping[Place, str] | None = None) -> Rows:
        """The same columns, and more of them, in another frame."""
        return replace(self, frame=frame, columns={**self.columns, **(more or {})})


class Names:
    """Column names that nobody has used yet: a letter and a number."""

    def __init__(self, letter: str = "x") -> None:
        self._letter = letter
        self._numbers = count()

    def take(self) -> str:
        """One name."""
        return f"{self._letter}{next(self._numbers)}"

    def of(self, variable: str, properties: Iterable[str]) -> dict[Place, str]:
        """A name for each property of a variable."""
        return {(variable, name): self.take() for name in properties}


def looked_at(node: Any) -> Iterator[Place]:
    """The places that a part of a query mentions, repeated where it repeats them.

    >>> from omnigraph.lang.types import STRING
    >>> step = ir.NodeScan("p", "Person", (ir.IsNull(ir.PropertyRef("p", "name", STRING)),))
    >>> sorted(set(looked_at(step)))
    [('p', 'id'), ('p', 'name')]
    """
    match node:
        case ir.PropertyRef():
            yield node.variable, node.property
        case ir.EntityRef():
            yield node.variable, ID
        case ir.NodeScan():
            yield node.variable, ID
            yield from looked_at(node.where)
        case ir.Expand():
            for variable in (node.source, node.target, node.edge_variable):
                if variable is not None:
                    yield variable, ID
        case tuple():
            for item in node:
                yield from looked_at(item)
        case _ if is_dataclass(node):
            for item in fields(node):
                yield from looked_at(getattr(node, item.name))


def properties_of(node: Any) -> tuple[ir.PropertyRef | ir.EntityRef, ...]:
    """The references to rows in a predicate or expression, each once."""
    found: list[ir.PropertyRef | ir.EntityRef] = []
    if isinstance(node, ir.PropertyRef | ir.EntityRef):
        found.append(node)
    elif isinstance(node, tuple):
        found += [ref for item in node for ref in properties_of(item)]
    elif is_dataclass(node):
        found += [ref for item in fields(node) for ref in properties_of(getattr(node, item.name))]
    return tuple(dict.fromkeys(found))


def place_of(ref: ir.PropertyRef | ir.EntityRef) -> Place:
    """Where the value of a reference is."""
    return ref.variable, ID if isinstance(ref, ir.EntityRef) else ref.property
