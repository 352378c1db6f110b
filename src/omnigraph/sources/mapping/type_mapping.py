"""Mappings of input columns to properties, as plain values that can be sent to other processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

from omnigraph.errors import InvalidInput
from omnigraph.sources.row_operations import RowOperations

Format: TypeAlias = Literal["csv", "json", "parquet", "orc", "avro", "arrow"]
FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass(frozen=True)
class TypeMapping:
    """The mapping of one type; `mapping_reader.read_mapping` creates and validates it.

    `columns` has the input column, or the dotted path, of each mapped property. `endpoints` has the key columns
    of the nodes at ``src`` and ``dst``, in the order of their keys. Other properties are read from columns of
    the same name. `constants` are JSON values. `casts` are by property, `endpoint_casts` by column of
    `endpoints`. Columns that are not read must be listed in `ignore`, unless `ignores_others` is true. `operations`
    are the operations of the rows; without them the mode of the load applies to whole rows.
    """

    key: str
    source: str | None = None
    format: Format | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    endpoints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    casts: Mapping[str, str] = field(default_factory=dict)
    endpoint_casts: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    ignores_others: bool = False
    null_values: tuple[str, ...] = ()
    operations: RowOperations | None = None


@dataclass(frozen=True)
class LoadMapping:
    """The mappings of a load by table key, such as ``node:Person``; `name` is the file of the mapping."""

    types: Mapping[str, TypeMapping]
    name: str | None = None

    def source_of(self, source: Any) -> Any:
        """Return the source of a load by type: the source that was passed, or else the sources of the mapping.

        A single path is the source of the only type of the mapping. Raises `InvalidInput` for no source at all, and
        for an empty mapping of sources: it would load nothing where the mapping names files.
        """
        if source is None:
            without = [key for key, item in self.types.items() if item.source is None]
            if without or not self.types:
                raise InvalidInput(
                    f"the mapping has no source for {', '.join(without) or 'any type'}",
                    hint="add `source:` to the mapping, or pass the source to load",
                )
            return {key: item.source for key, item in self.types.items()}
        if isinstance(source, Mapping):
            if not source:
                raise InvalidInput(
                    f"a mapping of {', '.join(self.types) or 'no type'} and no rows to load",
                    hint="pass files or rows for at least one type",
                )
            return source
        if len(self.types) == 1:
            return {next(iter(self.types)): source}
        raise InvalidInput(
            "a mapping of several types requires a source per type",
            hint='pass the sources by type: {"Person": "people.csv"}',
        )


def with_operations(
    key: str, mapping: TypeMapping | None, operations: RowOperations | None
) -> TypeMapping | None:
    """Return the mapping of a type with the operations of its rows."""
    return mapping if operations is None else replace(mapping or TypeMapping(key), operations=operations)


def effective_source(source: Any, mapping: LoadMapping | None) -> Any:
    """Return the source of a load with an optional mapping."""
    return source if mapping is None else mapping.source_of(source)
