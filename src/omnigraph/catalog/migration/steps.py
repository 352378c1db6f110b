"""What a migration consists of: frozen steps, each with its wire shape, and the plan that lists them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from omnigraph.catalog.serialization import Json, encode_annotation, encode_constraint, encode_type
from omnigraph.lang.schema import Annotation, Constraint, TypeKind
from omnigraph.lang.types import PropType

DropMode: TypeAlias = Literal["soft", "hard"]


@dataclass(frozen=True, slots=True)
class AddType:
    """A type that did not exist; its properties and constraints come with it."""

    type_kind: TypeKind
    name: str

    def to_json(self) -> Json:
        """The wire shape."""
        return {"kind": "add_type", "type_kind": self.type_kind, "name": self.name}


@dataclass(frozen=True, slots=True)
class RenameType:
    """A type goes on under another name; identity, data and history stay."""

    type_kind: TypeKind
    old: str
    new: str

    def to_json(self) -> Json:
        """The wire shape."""
        return {"kind": "rename_type", "type_kind": self.type_kind, "from": self.old, "to": self.new}


@dataclass(frozen=True, slots=True)
class AddProperty:
    """A property that existing rows read as null, or with `backfill` get a value for."""

    type_kind: TypeKind
    type_name: str
    property_name: str
    property_type: PropType
    backfill: bool = False

    def to_json(self) -> Json:
        """The wire shape; `backfill` is left out when there is none."""
        found: Json = {
            "kind": "add_property",
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "property_name": self.property_name,
            "property_type": encode_type(self.property_type),
        }
        return {**found, "backfill": True} if self.backfill else found


@dataclass(frozen=True, slots=True)
class RenameProperty:
    """A property goes on under another name; `type_name` is the new name of its type."""

    type_kind: TypeKind
    type_name: str
    old: str
    new: str

    def to_json(self) -> Json:
        """The wire shape."""
        return {
            "kind": "rename_property",
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "from": self.old,
            "to": self.new,
        }


@dataclass(frozen=True, slots=True)
class AddConstraint:
    """An index hint, for which nothing is built until the next optimize, or uniqueness of a new property."""

    type_kind: TypeKind
    type_name: str
    constraint: Constraint

    def to_json(self) -> Json:
        """The wire shape."""
        return {
            "kind": "add_constraint",
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "constraint": encode_constraint(self.constraint),
        }


@dataclass(frozen=True, slots=True)
class ExtendEnum:
    """An enum allows more values than before, and all it did before."""

    type_kind: TypeKind
    type_name: str
    property_name: str
    added_values: tuple[str, ...]

    def to_json(self) -> Json:
        """The wire shape."""
        return {
            "kind": "extend_enum",
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "property_name": self.property_name,
            "added_values": list(self.added_values),
        }


@dataclass(frozen=True, slots=True)
class UpdateTypeMetadata:
    """The description or instruction of a type changed; `annotations` are the new ones."""

    type_kind: TypeKind
    name: str
    annotations: tuple[Annotation, ...]

    def to_json(self) -> Json:
        """The wire shape."""
        return {
            "kind": "update_type_metadata",
            "type_kind": self.type_kind,
            "name": self.name,
            "annotations": [encode_annotation(item) for item in self.annotations],
        }


@dataclass(frozen=True, slots=True)
class UpdatePropertyMetadata:
    """The description of a property changed; `annotations` are the new ones."""

    type_kind: TypeKind
    type_name: str
    property_name: str
    annotations: tuple[Annotation, ...]

    def to_json(self) -> Json:
        """The wire shape."""
        return {
            "kind": "update_property_metadata",
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "property_name": self.property_name,
            "annotations": [encode_annotation(item) for item in self.annotations],
        }


@dataclass(frozen=True, slots=True)
class DropType:
    """A type and its rows go away; `hard` makes earlier versions unreadable too."""

    type_kind: TypeKind
    name: str
    mode: DropMode

    def to_json(self) -> Json:
        """The wire shape."""
        return {"kind": "drop_type", "type_kind": self.type_kind, "name": self.name, "mode": self.mode}


@dataclass(frozen=True, slots=True)
class DropProperty:
    """A property and its values go away; `hard` makes earlier versions unreadable too."""

    type_kind: TypeKind
    type_name: str
    property_name: str
    mode: DropMode

    def to_json(self) -> Json:
        """The wire shape."""
        return {
            "kind": "drop_property",
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "property_name": self.property_name,
            "mode": self.mode,
        }


@dataclass(frozen=True, slots=True)
class UnsupportedChange:
    """Something that cannot be carried out; one of these makes the whole plan unsupported."""

    entity: str
    reason: str
    code: str | None = None

    def to_json(self) -> Json:
        """The wire shape; a missing code is left out."""
        found: Json = {"kind": "unsupported_change", "entity": self.entity, "reason": self.reason}
        return found if self.code is None else {**found, "code": self.code}


MigrationStep: TypeAlias = (
    AddType
    | RenameType
    | AddProperty
    | RenameProperty
    | AddConstraint
    | ExtendEnum
    | UpdateTypeMetadata
    | UpdatePropertyMetadata
    | DropType
    | DropProperty
    | UnsupportedChange
)


@dataclass(frozen=True)
class MigrationPlan:
    """The steps from an accepted schema to a desired one, in the order they are shown and applied."""

    steps: tuple[MigrationStep, ...] = ()

    @cached_property
    def supported(self) -> bool:
        """Whether every step can be carried out."""
        return self.refusal is None

    @cached_property
    def refusal(self) -> str | None:
        """What a refused apply reports: ``[CODE] reason`` of the first unsupported step."""
        for step in self.steps:
            if isinstance(step, UnsupportedChange):
                return step.reason if step.code is None else f"[{step.code}] {step.reason}"
        return None

    def to_json(self) -> Json:
        """The wire shape."""
        return {"supported": self.supported, "steps": [step.to_json() for step in self.steps]}
