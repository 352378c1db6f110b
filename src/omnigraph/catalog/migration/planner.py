"""Planning a schema change: what it takes to get from the accepted schema to a desired one.

Steps come in this order: interfaces, nodes, edges, each by name, and last whole types that go away. Within
a type: its rename; implements, endpoints, cardinality; metadata; each property by name (rename, provenance,
type, embedding, constraints, metadata); property drops; body constraints. Each rule is one generator below;
lifting a refusal means yielding another step there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.migration.backfill_requests import filled_properties
from omnigraph.catalog.migration.migration_codes import ADD_REQUIRED, CHANGE_TYPE
from omnigraph.catalog.migration.renames import AnyType, Matching, PropertyName, all_types, match_schemas
from omnigraph.catalog.migration.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    DropMode,
    DropProperty,
    DropType,
    ExtendEnum,
    MigrationPlan,
    MigrationStep,
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
)

METADATA = frozenset({"description", "instruction"})
PROPERTY_CONSTRAINTS = frozenset({"key", "unique", "index"})

_V1 = "is not supported in schema migration v1"


def plan_migration(
    accepted: Catalog, desired: Schema, *, allow_data_loss: bool = False, backfills: Iterable[str] = ()
) -> MigrationPlan:
    """The steps from the accepted schema to the desired one; none when they are the same schema.

    `allow_data_loss` makes every drop hard. `backfills` names the new properties, each as
    ``Type.property``, that existing rows get a value for; only such a property may be required. One that an
    interface hands down is named on each node that has rows, and with all of them named it may be required
    on the interface too.

    A change that cannot be carried out is an `UnsupportedChange` step, not an error. A rename hint or a
    backfill that refers to nothing is `InvalidInput`, because what was meant is unknown.
    """
    matching = match_schemas(accepted.schema, desired)
    filled = filled_properties(desired, matching, backfills)
    mode: DropMode = "hard" if allow_data_loss else "soft"
    before = {(item.kind, item.name): item for item in all_types(accepted.schema)}
    steps: list[MigrationStep] = []
    for item in all_types(desired):
        old_name = matching.types.get((item.kind, item.name))
        if old_name is None:
            steps.append(AddType(item.kind, item.name))
        else:
            renamed = matching.renamed_properties(item.kind, item.name)
            steps += _type_steps(_Pair(before[item.kind, old_name], item, matching, renamed, mode, filled))
    kept = {(kind, old) for (kind, _), old in matching.types.items()}
    for item in all_types(accepted.schema):
        if (item.kind, item.name) not in kept:
            steps.append(_dropped_type(item, mode))
    return MigrationPlan(tuple(steps))


@dataclass(frozen=True, slots=True)
class _Pair:
    """A type before and after, with the names around it; `renamed` has new property names by old name."""

    old: AnyType
    new: AnyType
    matching: Matching
    renamed: dict[str, str]
    mode: DropMode
    filled: frozenset[PropertyName]

    @property
    def kind(self) -> TypeKind:
        return self.new.kind

    @property
    def name(self) -> str:
        return self.new.name

    def refuse(self, reason: str) -> UnsupportedChange:
        return UnsupportedChange(f"{self.kind}:{self.name}", f"{reason} {_V1}")

    def refuse_property(self, name: str, reason: str, code: str | None = None) -> UnsupportedChange:
        return UnsupportedChange(f"{self.kind}:{self.name}.{name}", f"{reason} {_V1}", code)

    def is_new(self, name: str) -> bool:
        return name in self.new.by_name and (self.kind, self.name, name) not in self.matching.properties

    def is_filled(self, name: str) -> bool:
        return (self.kind, self.name, name) in self.filled

    def can_add(self, prop: Property) -> bool:
        return prop.type.nullable or self.is_filled(prop.name)


def _dropped_type(item: AnyType, mode: DropMode) -> MigrationStep:
    if item.kind == "interface":
        return UnsupportedChange(f"interface:{item.name}", f"removing interface '{item.name}' {_V1}")
    return DropType(item.kind, item.name, mode)


def _type_steps(pair: _Pair) -> Iterator[MigrationStep]:
    if pair.old.name != pair.name:
        yield RenameType(pair.kind, pair.old.name, pair.name)
    yield from _contract_changes(pair)
    yield from _type_annotation_changes(pair)
    for prop in sorted(pair.new.properties, key=lambda prop: prop.name):
        old_name = pair.matching.properties.get((pair.kind, pair.name, prop.name))
        if old_name is None:
            yield from _new_property(pair, prop)
        else:
            yield from _property_changes(pair, pair.old.by_name[old_name], prop)
    yield from _dropped_properties(pair)
    yield from _body_constraint_changes(pair)


def _contract_changes(pair: _Pair) -> Iterator[MigrationStep]:
    """What a type promises others: the interfaces of a node, the ends and the cardinality of an edge."""
    old, new = pair.old, pair.new
    if isinstance(old, NodeType) and isinstance(new, NodeType):
        if set(old.implements) != set(new.implements):
            yield pair.refuse(f"changing implemented interfaces on node '{pair.name}'")
    elif isinstance(old, EdgeType) and isinstance(new, EdgeType):
        names = pair.matching.renamed_types("node")
        if (names.get(old.source), names.get(old.target)) != (new.source, new.target):
            yield pair.refuse(f"changing edge endpoints on '{pair.name}'")
        if old.cardinality != new.cardinality:
            yield pair.refuse(f"changing cardinality on edge '{pair.name}'")


def _type_annotation_changes(pair: _Pair) -> Iterator[MigrationStep]:
    old, new = pair.old.annotations, pair.new.annotations
    if _metadata(old) != _metadata(new):
        yield UpdateTypeMetadata(pair.kind, pair.name, tuple(_metadata(new).values()))
    for name in _changed_names(old, new, METADATA):
        yield pair.refuse(f"changing annotation '@{name}' on '{pair.name}'")


def _new_property(pair: _Pair, prop: Property) -> Iterator[MigrationStep]:
    full = f"'{pair.name}.{prop.name}'"
    if pair.can_add(prop):
        # An interface has no rows that a value could be given to.
        backfill = pair.kind != "interface" and pair.is_filled(prop.name)
        yield AddProperty(pair.kind, pair.name, prop.name, canonical_type(prop.type), backfill)
    else:
        reason = f"adding required property {full} requires a backfill and"
        yield pair.refuse_property(prop.name, reason, ADD_REQUIRED)
    yield from _added_property_constraints(pair, prop, _constraint_names(prop))


def _property_changes(pair: _Pair, old: Property, new: Property) -> Iterator[MigrationStep]:
    full = f"'{pair.name}.{new.name}'"
    if old.name != new.name:
        yield RenameProperty(pair.kind, pair.name, old.name, new.name)
    if old.inherited != new.inherited:
        yield pair.refuse_property(new.name, f"changing declaration provenance for {full}")
    yield from _type_changes(pair, old, new)
    if _followed(old.embed, pair.renamed) != new.embed:
        yield pair.refuse_property(new.name, f"changing @embed source or model for {full}")
    before, after = _constraint_names(old), _constraint_names(new)
    if before - after:
        yield pair.refuse_property(new.name, f"removing property constraints from {full}")
    yield from _added_property_constraints(pair, new, after - before)
    if _metadata(old.annotations) != _metadata(new.annotations):
        annotations = tuple(_metadata(new.annotations).values())
        yield UpdatePropertyMetadata(pair.kind, pair.name, new.name, annotations)
    handled = METADATA | PROPERTY_CONSTRAINTS | {"embed"}
    for name in _changed_names(old.annotations, new.annotations, handled):
        yield pair.refuse_property(new.name, f"changing annotation '@{name}' on {full}")


def _type_changes(pair: _Pair, old: Property, new: Property) -> Iterator[MigrationStep]:
    before, after = canonical_type(old.type), canonical_type(new.type)
    if before == after:
        return
    was, now = set(before.enum_values or ()), set(after.enum_values or ())
    same_otherwise = before.nullable == after.nullable and before.is_enum and after.is_enum
    if same_otherwise and was < now:
        yield ExtendEnum(pair.kind, pair.name, new.name, tuple(sorted(now - was)))
    else:
        reason = f"changing property type for '{pair.name}.{new.name}'"
        yield pair.refuse_property(new.name, reason, CHANGE_TYPE)


def _added_property_constraints(pair: _Pair, prop: Property, added: Iterable[str]) -> Iterator[MigrationStep]:
    for name in sorted(added):
        if name == "index":
            yield AddConstraint(pair.kind, pair.name, Index((prop.name,)))
        elif name == "unique" and pair.is_new(prop.name) and pair.can_add(prop):
            yield AddConstraint(pair.kind, pair.name, Unique((prop.name,)))
        else:
            reason = f"adding a property-level @{name} constraint to '{pair.name}.{prop.name}'"
            yield pair.refuse_property(prop.name, reason)


def _dropped_properties(pair: _Pair) -> Iterator[MigrationStep]:
    kept = pair.renamed
    for prop in sorted(pair.old.properties, key=lambda prop: prop.name):
        if prop.name in kept:
            continue
        if "key" in _constraint_names(prop):
            # An index or a uniqueness rule has nothing left to say about a property that is gone. A key
            # does: the ids of the rows that stay were made from it.
            yield pair.refuse_property(
                prop.name, f"removing property constraints from '{pair.name}.{prop.name}'"
            )
        else:
            yield DropProperty(pair.kind, pair.name, prop.name, pair.mode)


def _body_constraint_changes(pair: _Pair) -> Iterator[MigrationStep]:
    before = constraint_keys(_lasting_constraints(pair), pair.renamed)
    after = constraint_keys(pair.new.constraints)
    if before.keys() - after.keys():
        yield pair.refuse(f"removing constraints from '{pair.name}'")
    for key, constraint in after.items():
        if key in before:
            continue
        if isinstance(constraint, Index) or (isinstance(constraint, Unique) and _is_young(pair, constraint)):
            yield AddConstraint(pair.kind, pair.name, constraint)
        else:
            yield pair.refuse(f"adding constraint '{constraint_text(constraint)}' to '{pair.name}'")


def _lasting_constraints(pair: _Pair) -> list[Constraint]:
    """Those that still have something to say: not the rules about nothing but properties that are dropped."""
    dropped = pair.old.by_name.keys() - pair.renamed.keys()
    return [
        item
        for item in pair.old.constraints
        if isinstance(item, Key) or not constrained_columns(item) <= dropped
    ]


def _is_young(pair: _Pair, constraint: Unique) -> bool:
    """Whether no row could have broken the constraint so far: one of its columns had no values."""
    return any(pair.is_new(name) and pair.can_add(pair.new.by_name[name]) for name in constraint.columns)


def _followed(embed: Embed | None, renamed: dict[str, str]) -> Embed | None:
    """The embedding of a property whose source may have a new name."""
    return None if embed is None else Embed(renamed.get(embed.source, embed.source), embed.model)


def _constraint_names(prop: Property) -> frozenset[str]:
    return frozenset(item.name for item in prop.annotations) & PROPERTY_CONSTRAINTS


def _metadata(annotations: Iterable[Annotation]) -> dict[str, Annotation]:
    return annotation_keys(item for item in annotations if item.name in METADATA)


def _changed_names(
    old: Iterable[Annotation], new: Iterable[Annotation], handled: frozenset[str]
) -> list[str]:
    """Names of the annotations that differ and that no other rule looks at."""
    before, after = annotation_keys(old), annotation_keys(new)
    differing = [before[key] for key in before.keys() - after.keys()]
    differing += [after[key] for key in after.keys() - before.keys()]
    return sorted({item.name for item in differing} - handled)
