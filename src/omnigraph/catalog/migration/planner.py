"""Planner of schema migrations: the steps from the accepted schema to a desired one.

The order of the steps: interfaces, nodes, edges, each by name, then dropped types. Within a type: its rename;
implements, endpoints, cardinality; metadata; each property by name (rename, provenance, type, embedding,
constraints, metadata); dropped properties; body constraints. Each rule is one generator below. To support another
change, yield another step from its generator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.migration.backfill_requests import backfilled_properties
from omnigraph.catalog.migration.migration_codes import ADD_REQUIRED, CHANGE_TYPE
from omnigraph.catalog.migration.renames import Matching, PropertyName, match_schemas
from omnigraph.catalog.migration.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    ChangeEmbedding,
    DropMode,
    DropProperty,
    DropType,
    ExtendEnum,
    MigrationPlan,
    MigrationStep,
    RemoveConstraint,
    RenameProperty,
    RenameType,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
)
from omnigraph.catalog.shape import annotation_keys, canonical_type, constrained_columns, constraint_keys
from omnigraph.lang.pg.schema_notation import constraint_text
from omnigraph.lang.schema import (
    Annotation,
    AnyType,
    Constraint,
    EdgeType,
    Embed,
    Index,
    Key,
    NodeType,
    Property,
    Schema,
    TypeKind,
    Unique,
    all_types,
)

METADATA = frozenset({"description", "instruction"})
PROPERTY_CONSTRAINTS = frozenset({"key", "unique", "index"})

_V1 = "is not supported in schema migration v1"


def plan_migration(
    accepted: Catalog, desired: Schema, *, allow_data_loss: bool = False, backfills: Iterable[str] = ()
) -> MigrationPlan:
    """Plan the migration from the accepted schema to the desired one; equal schemas give an empty plan.

    `allow_data_loss` makes every drop hard. `backfills` names, as ``Type.property``, the new properties whose
    values are computed for existing rows; only such a property may be required. An inherited property is named
    on each existing node type; when all of them are named, it may be required on the interface too.

    An unsupported change is an `UnsupportedChange` step, not an error. Raises `InvalidInput` for a rename hint
    or a backfill that does not match the schemas.
    """
    matching = match_schemas(accepted.schema, desired)
    backfilled = backfilled_properties(desired, matching, backfills)
    mode: DropMode = "hard" if allow_data_loss else "soft"
    before = {(item.kind, item.name): item for item in all_types(accepted.schema)}
    steps: list[MigrationStep] = []
    for item in all_types(desired):
        old_name = matching.types.get((item.kind, item.name))
        if old_name is None:
            steps.append(AddType(item.kind, item.name))
        else:
            renamed = matching.renamed_properties(item.kind, item.name)
            old = before[item.kind, old_name]
            steps += _type_steps(_TypeChange(old, item, matching, renamed, mode, backfilled))
    kept = {(kind, old) for (kind, _), old in matching.types.items()}
    for item in all_types(accepted.schema):
        if (item.kind, item.name) not in kept:
            steps.append(_dropped_type(item, mode))
    return MigrationPlan(tuple(steps))


@dataclass(frozen=True, slots=True)
class _TypeChange:
    """A type before and after the migration; `renamed` has new property names by old name."""

    old: AnyType
    new: AnyType
    matching: Matching
    renamed: dict[str, str]
    mode: DropMode
    backfilled: frozenset[PropertyName]

    @property
    def kind(self) -> TypeKind:
        return self.new.kind

    @property
    def name(self) -> str:
        return self.new.name

    def unsupported(self, reason: str) -> UnsupportedChange:
        return UnsupportedChange(f"{self.kind}:{self.name}", f"{reason} {_V1}")

    def unsupported_property(self, name: str, reason: str, code: str | None = None) -> UnsupportedChange:
        return UnsupportedChange(f"{self.kind}:{self.name}.{name}", f"{reason} {_V1}", code)

    def is_new(self, name: str) -> bool:
        return name in self.new.by_name and (self.kind, self.name, name) not in self.matching.properties

    def is_backfilled(self, name: str) -> bool:
        return (self.kind, self.name, name) in self.backfilled

    def can_add(self, prop: Property) -> bool:
        return prop.type.nullable or self.is_backfilled(prop.name)


def _dropped_type(item: AnyType, mode: DropMode) -> MigrationStep:
    if item.kind == "interface":
        return UnsupportedChange(f"interface:{item.name}", f"removing interface '{item.name}' {_V1}")
    return DropType(item.kind, item.name, mode)


def _type_steps(change: _TypeChange) -> Iterator[MigrationStep]:
    if change.old.name != change.name:
        yield RenameType(change.kind, change.old.name, change.name)
    yield from _contract_changes(change)
    yield from _type_annotation_changes(change)
    for prop in sorted(change.new.properties, key=lambda prop: prop.name):
        old_name = change.matching.properties.get((change.kind, change.name, prop.name))
        if old_name is None:
            yield from _new_property(change, prop)
        else:
            yield from _property_changes(change, change.old.by_name[old_name], prop)
    yield from _dropped_properties(change)
    yield from _body_constraint_changes(change)


def _contract_changes(change: _TypeChange) -> Iterator[MigrationStep]:
    """Compare the interfaces of a node, or the endpoints and the cardinality of an edge."""
    old, new = change.old, change.new
    if isinstance(old, NodeType) and isinstance(new, NodeType):
        if set(old.implements) != set(new.implements):
            yield change.unsupported(f"changing implemented interfaces on node '{change.name}'")
    elif isinstance(old, EdgeType) and isinstance(new, EdgeType):
        names = change.matching.renamed_types("node")
        if (names.get(old.source), names.get(old.target)) != (new.source, new.target):
            yield change.unsupported(f"changing edge endpoints on '{change.name}'")
        if old.cardinality != new.cardinality:
            yield change.unsupported(f"changing cardinality on edge '{change.name}'")


def _type_annotation_changes(change: _TypeChange) -> Iterator[MigrationStep]:
    old, new = change.old.annotations, change.new.annotations
    if _metadata(old) != _metadata(new):
        yield UpdateTypeMetadata(change.kind, change.name, tuple(_metadata(new).values()))
    for name in _changed_names(old, new, METADATA):
        yield change.unsupported(f"changing annotation '@{name}' on '{change.name}'")


def _new_property(change: _TypeChange, prop: Property) -> Iterator[MigrationStep]:
    full = f"'{change.name}.{prop.name}'"
    if change.can_add(prop):
        # An interface has no rows to backfill.
        backfill = change.kind != "interface" and change.is_backfilled(prop.name)
        yield AddProperty(change.kind, change.name, prop.name, canonical_type(prop.type), backfill)
    else:
        yield UnsupportedChange(
            f"{change.kind}:{change.name}.{prop.name}",
            f"adding required property {full} requires a backfill: {_backfill_option(change, prop)}",
            ADD_REQUIRED,
        )
    yield from _added_property_constraints(change, prop, _constraint_names(prop))


def _backfill_option(change: _TypeChange, prop: Property) -> str:
    if change.kind == "interface":
        return f"pass --backfill Type.{prop.name}=JSON for each implementing type"
    return f"pass --backfill {change.name}.{prop.name}=JSON"


def _property_changes(change: _TypeChange, old: Property, new: Property) -> Iterator[MigrationStep]:
    full = f"'{change.name}.{new.name}'"
    if old.name != new.name:
        yield RenameProperty(change.kind, change.name, old.name, new.name)
    if old.inherited != new.inherited:
        yield change.unsupported_property(new.name, f"changing declaration provenance for {full}")
    yield from _type_changes(change, old, new)
    before_embed = _renamed_embed(old.embed, change.renamed)
    if before_embed != new.embed:
        if _can_change_embed(before_embed, new.embed):
            yield ChangeEmbedding(change.kind, change.name, new.name, before_embed, new.embed)
        else:
            yield change.unsupported_property(new.name, f"changing @embed source or model for {full}")
    before, after = _constraint_names(old), _constraint_names(new)
    if before - after:
        yield change.unsupported_property(new.name, f"removing property constraints from {full}")
    yield from _added_property_constraints(change, new, after - before)
    if _metadata(old.annotations) != _metadata(new.annotations) or _has_other_options(old, new):
        annotations = tuple(_metadata(new.annotations).values())
        if _has_other_options(old, new):
            annotations += tuple(item for item in new.annotations if item.name in ("index", "text"))
        yield UpdatePropertyMetadata(change.kind, change.name, new.name, annotations)
    handled = METADATA | PROPERTY_CONSTRAINTS | {"embed", "text"}
    for name in _changed_names(old.annotations, new.annotations, handled):
        yield change.unsupported_property(new.name, f"changing annotation '@{name}' on {full}")


def _type_changes(change: _TypeChange, old: Property, new: Property) -> Iterator[MigrationStep]:
    before, after = canonical_type(old.type), canonical_type(new.type)
    if before == after:
        return
    was, now = set(before.enum_values or ()), set(after.enum_values or ())
    same_otherwise = before.nullable == after.nullable and before.is_enum and after.is_enum
    if same_otherwise and was < now:
        yield ExtendEnum(change.kind, change.name, new.name, tuple(sorted(now - was)))
    else:
        reason = f"changing property type for '{change.name}.{new.name}'"
        yield change.unsupported_property(new.name, reason, CHANGE_TYPE)


def _added_property_constraints(
    change: _TypeChange, prop: Property, added: Iterable[str]
) -> Iterator[MigrationStep]:
    for name in sorted(added):
        if name == "index":
            yield AddConstraint(change.kind, change.name, Index((prop.name,)))
        elif name == "unique" and change.is_new(prop.name) and change.can_add(prop):
            yield AddConstraint(change.kind, change.name, Unique((prop.name,)))
        else:
            reason = f"adding a property-level @{name} constraint to '{change.name}.{prop.name}'"
            yield change.unsupported_property(prop.name, reason)


def _dropped_properties(change: _TypeChange) -> Iterator[MigrationStep]:
    kept = change.renamed
    for prop in sorted(change.old.properties, key=lambda prop: prop.name):
        if prop.name in kept:
            continue
        if "key" in _constraint_names(prop):
            # An index or unique constraint ends with its property. A key does not: the ids of the remaining
            # rows are derived from it.
            yield change.unsupported_property(
                prop.name, f"removing property constraints from '{change.name}.{prop.name}'"
            )
        else:
            yield DropProperty(change.kind, change.name, prop.name, change.mode)


def _body_constraint_changes(change: _TypeChange) -> Iterator[MigrationStep]:
    old, new = _remaining_constraints(change), list(change.new.constraints)
    if change.kind == "edge":
        yield from _edge_key_changes(change)
        old, new = _without_keys(old), _without_keys(new)
    before = constraint_keys(old, change.renamed)
    after = constraint_keys(new)
    if before.keys() - after.keys():
        yield change.unsupported(f"removing constraints from '{change.name}'")
    for key, constraint in after.items():
        if key in before:
            continue
        if isinstance(constraint, Index) or (
            isinstance(constraint, Unique) and _has_new_column(change, constraint)
        ):
            yield AddConstraint(change.kind, change.name, constraint)
        else:
            yield change.unsupported(f"adding constraint '{constraint_text(constraint)}' to '{change.name}'")


def _edge_key_changes(change: _TypeChange) -> Iterator[MigrationStep]:
    """Compare the keys of an edge. No row refers to an edge by its id, so that existing edges can get new ids."""
    before = Key(tuple(change.renamed.get(name, name) for name in change.old.key or ()))
    after = Key(change.new.key or ())
    if set(before.columns) == set(after.columns):
        return
    if before.columns:
        yield RemoveConstraint(change.kind, change.name, before)
    if after.columns:
        yield AddConstraint(change.kind, change.name, after)


def _without_keys(constraints: Iterable[Constraint]) -> list[Constraint]:
    return [item for item in constraints if not isinstance(item, Key)]


def _remaining_constraints(change: _TypeChange) -> list[Constraint]:
    """Return the old constraints without those whose columns are all dropped; keys always remain."""
    dropped = change.old.by_name.keys() - change.renamed.keys()
    return [
        item
        for item in change.old.constraints
        if isinstance(item, Key) or not constrained_columns(item) <= dropped
    ]


def _has_new_column(change: _TypeChange, constraint: Unique) -> bool:
    """Return whether a column of the constraint is new, so that no existing row can violate it."""
    return any(
        change.is_new(name) and change.can_add(change.new.by_name[name]) for name in constraint.columns
    )


def _renamed_embed(embed: Embed | None, renamed: dict[str, str]) -> Embed | None:
    """Return the embedding with the new name of its source property."""
    return None if embed is None else replace(embed, source=renamed.get(embed.source, embed.source))


def _can_change_embed(before: Embed | None, after: Embed | None) -> bool:
    """Return whether the vectors that a change makes stale can be found: they have records.

    A provider that is added to a declaration does not change what the vectors without records mean.
    """
    if before is not None and before.provider is not None:
        return True
    if after is None or after.provider is None:
        return False
    return before is None or (before.source == after.source and before.model in (None, after.model))


def _has_other_options(old: Property, new: Property) -> bool:
    """Return whether an index that both declare, or the analysis of a text, has other options.

    Both concern derived data, which is built again later. No row changes.
    """
    before, after = old.annotation("index"), new.annotation("index")
    if before is not None and after is not None and before.kwargs != after.kwargs:
        return True
    return old.annotation("text") != new.annotation("text")


def _constraint_names(prop: Property) -> frozenset[str]:
    return frozenset(item.name for item in prop.annotations) & PROPERTY_CONSTRAINTS


def _metadata(annotations: Iterable[Annotation]) -> dict[str, Annotation]:
    return annotation_keys(item for item in annotations if item.name in METADATA)


def _changed_names(
    old: Iterable[Annotation], new: Iterable[Annotation], handled: frozenset[str]
) -> list[str]:
    """Return the names of annotations that differ and that no other rule compares."""
    before, after = annotation_keys(old), annotation_keys(new)
    differing = [before[key] for key in before.keys() - after.keys()]
    differing += [after[key] for key in after.keys() - before.keys()]
    return sorted({item.name for item in differing} - handled)
