"""Which columns of an input fill the properties of a type. Plain values that travel to wherever rows are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from omnigraph.errors import InvalidInput

Format: TypeAlias = Literal["csv", "json", "parquet", "orc", "avro", "arrow"]
FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass(frozen=True)
class TypeMapping:
    """How the rows of one table are made of an input's rows; `mapping.read_mapping` makes and checks it.

    `columns` has the input column of a property, or a path of names with dots between them. `ends` has, for ``src``
    and ``dst``, the columns of the key values of the node there, in the order of its key. What is named nowhere
    comes from a column of its own name. `constants` are JSON values. `casts` go by property, `end_casts` by column
    of `ends`. Columns that fill nothing must be in `ignore`, unless `ignores_others`.
    """

    key: str
    source: str | None = None
    format: Format | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    ends: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    casts: Mapping[str, str] = field(default_factory=dict)
    end_casts: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    ignores_others: bool = False
    null_values: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoadMapping:
    """The mappings of a load by table, such as ``node:Person``; `name` is the file they were read from."""

    types: Mapping[str, TypeMapping]
    name: str | None = None

    def source_of(self, given: Any) -> Any:
        """What is to be loaded: what was given, or else what the mapping itself names, by type.

        A path alone is the source of the type when the mapping has just one.
        """
        if given is None:
            without = [key for key, item in self.types.items() if item.source is None]
            if without or not self.types:
                raise InvalidInput(
                    f"the mapping names no source for {', '.join(without) or 'any type'}",
                    hint="add `source:` there, or say what to load",
                )
            return {key: item.source for key, item in self.types.items()}
        if isinstance(given, Mapping):
            return given
        if len(self.types) == 1:
            return {next(iter(self.types)): given}
        raise InvalidInput(
            "a mapping of several types needs to know which input is of which type",
            hint='give inputs per type: {"Person": "people.csv"}',
        )


def effective_source(source: Any, mapping: LoadMapping | None) -> Any:
    """What a load with a mapping, or without one, is given."""
    return source if mapping is None else mapping.source_of(source)
