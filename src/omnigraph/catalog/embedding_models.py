"""The models of stored vectors after a change of the schema.

Every write records the model that its schema names. Other models are in a table only after a schema has named them,
so a query needs to look for them only then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from omnigraph.catalog.catalog import Catalog
from omnigraph.lang.schema import EmbeddedProperty

EarlierModels: TypeAlias = tuple[tuple[int, tuple[str, ...]], ...]


def earlier_models(previous: Iterable[Catalog], current: Catalog) -> EarlierModels:
    """Return the models that stored vectors may have besides those that the current schema names, by property.

    `previous` are the schemas that the current one follows: one after a migration, several after a merge.
    """
    models: dict[int, set[str]] = {}
    for catalog in previous:
        for number, names in catalog.earlier_models:
            models.setdefault(number, set()).update(names)
        for number, item in _embedded(catalog):
            models.setdefault(number, set()).add(item.embed.recorded_model)
    found = []
    for number, item in _embedded(current):
        others = models.get(number, set()) - {item.embed.recorded_model}
        if others:
            found.append((number, tuple(sorted(others))))
    return tuple(sorted(found))


def _embedded(catalog: Catalog) -> Iterator[tuple[int, EmbeddedProperty]]:
    for node in catalog.schema.nodes:
        for item in node.embedded:
            yield catalog.identities.of_property("node", node.name, item.name).id, item
