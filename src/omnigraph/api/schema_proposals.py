"""Propose a schema for files and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from omnigraph.errors import InvalidInput


def schema_from(
    source: Any,
    type_name: str | None = None,
    *,
    sample: int = 10_000,
    storage_options: Mapping[str, str] | None = None,
) -> str:
    """Return the text of a schema proposed for data. Review it before `init`.

    `source` is a path, glob or folder of files that `Graph.load` reads; an Arrow table, a data frame or a list of
    dicts, with `type_name` as its type; or a mapping from type names to any of these.

    The first `sample` rows of each file or table decide. A column without nulls is required, and a column with
    distinct values becomes the key. Rows with two columns ``from`` and ``to``, ``src`` and ``dst``, or ``source``
    and ``target`` are edges.

    >>> import omnigraph as og
    >>> cities = [{"name": "Bern", "founded": "1191-01-01"}, {"name": "Chur"}]
    >>> roads = [{"from": "Bern", "to": "Chur", "km": 243}]
    >>> print(og.schema_from({"City": cities, "Road": roads}), end="")
    node City {
      name: String @key
      founded: Date?
    }
    <BLANKLINE>
    edge Road: City -> City {
      km: I64
    }
    """
    from omnigraph.catalog.schema_proposal import propose_schema
    from omnigraph.sources.samples import sample_files, sample_table

    if sample < 1:
        raise InvalidInput(f"`sample` must be at least 1, got {sample}")
    if isinstance(source, Mapping):
        given = source.items()
    elif isinstance(source, str | Path):
        return propose_schema(sample_files(source, sample, dict(storage_options or {})))
    elif type_name is None:
        raise InvalidInput("the rows of a table have no type", hint="pass `type_name`, such as 'Person'")
    else:
        given = {type_name: source}.items()
    samples = []
    for name, item in given:
        if isinstance(item, str | Path):
            found = sample_files(item, sample, dict(storage_options or {}))
            samples += [replace(part, name=name) for part in found] if len(found) == 1 else found
        else:
            samples.append(sample_table(name, item, sample))
    return propose_schema(samples)
