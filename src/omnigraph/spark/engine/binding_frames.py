"""Bindings as a DataFrame, with the column of each property of each variable.

Spark compares names case-insensitively, and a table may occur in a query several times. Columns therefore have
generated names, which are unique in a query, and this module maps properties to them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.lang import ir

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A variable and one of its properties; the property ``id`` is the bound node or edge itself.
PropertyKey: TypeAlias = tuple[str, str]
ID = "id"


@dataclass(frozen=True)
class BindingFrame:
    """A DataFrame of bindings, and the column name of each property.

    Each row is a distinct combination of ids. Spark does not compute columns that are not used.
    """

    frame: DataFrame
    columns: Mapping[PropertyKey, str]

    @property
    def variables(self) -> frozenset[str]:
        """The bound variables."""
        return frozenset(variable for variable, name in self.columns if name == ID)

    def places(self, variables: Collection[str]) -> dict[PropertyKey, str]:
        """Return the columns of some variables."""
        return {place: name for place, name in self.columns.items() if place[0] in variables}

    def with_frame(self, frame: DataFrame, more: Mapping[PropertyKey, str] | None = None) -> BindingFrame:
        """Return the columns, and additional ones, in another DataFrame."""
        return replace(self, frame=frame, columns={**self.columns, **(more or {})})


class Names:
    """A generator of unique column names: a letter and a number."""

    def __init__(self, letter: str = "x") -> None:
        self._letter = letter
        self._numbers = count()

    def take(self) -> str:
        """Return a new name."""
        return f"{self._letter}{next(self._numbers)}"

    def of(self, variable: str, properties: Iterable[str]) -> dict[PropertyKey, str]:
        """Return a new name for each property of a variable."""
        return {(variable, name): self.take() for name in properties}


def referenced_properties(node: Any) -> Iterator[PropertyKey]:
    """Yield the properties that a part of a query refers to, with repetitions.

    >>> from omnigraph.lang.types import STRING
    >>> step = ir.NodeScan("p", "Person", (ir.IsNull(ir.PropertyRef("p", "name", STRING)),))
    >>> sorted(set(referenced_properties(step)))
    [('p', 'id'), ('p', 'name')]
    """
    match node:
        case ir.PropertyRef():
            yield node.variable, node.property
        case ir.EntityRef():
            yield node.variable, ID
        case ir.NodeScan():
            yield node.variable, ID
            yield from referenced_properties(node.where)
        case ir.Expand():
            for variable in (node.source, node.target, node.edge_variable):
                if variable is not None:
                    yield variable, ID
        case tuple():
            for item in node:
                yield from referenced_properties(item)
        case _ if is_dataclass(node):
            for item in fields(node):
                yield from referenced_properties(getattr(node, item.name))


def row_references(node: Any) -> tuple[ir.PropertyRef | ir.EntityRef, ...]:
    """Return the distinct references to rows in a predicate or expression."""
    found: list[ir.PropertyRef | ir.EntityRef] = []
    if isinstance(node, ir.PropertyRef | ir.EntityRef):
        found.append(node)
    elif isinstance(node, tuple):
        found += [ref for item in node for ref in row_references(item)]
    elif is_dataclass(node):
        found += [ref for item in fields(node) for ref in row_references(getattr(node, item.name))]
    return tuple(dict.fromkeys(found))


def property_key(ref: ir.PropertyRef | ir.EntityRef) -> PropertyKey:
    """Return the key of a referenced property."""
    return ref.variable, ID if isinstance(ref, ir.EntityRef) else ref.property
