"""Migration steps, each with its JSON form, and the plan that lists them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from omnigraph.catalog.serialization import Json, encode_annotation, encode_constraint, encode_type
from omnigraph.lang.schema import Annotation, Constraint, Embed, TypeKind
from omnigraph.lang.types import PropType

DropMode: TypeAlias = Literal["soft", "hard"]


@dataclass(frozen=True, slots=True)
class AddType:
    """Add a type with its properties and constraints."""

    type_kind: TypeKind
    name: str

    def to_json(self) -> Json:
        """Return the JSON form."""
        return {"kind": "add_type", "type_kind": self.type_kind, "name": self.name}


@dataclass(frozen=True, slots=True)
class RenameType:
    """Rename a type; identity, data and history are kept."""

    type_kind: TypeKind
    old: str
    new: str

    def to_json(self) -> Json:
        """Return the JSON form."""
        return {"kind": "rename_type", "type_kind": self.type_kind, "from": self.old, "to": self.new}


@dataclass(frozen=True, slots=True)
class AddProperty:
    """Add a property. Existing rows read null, or with `backfill` a computed value."""

    type_kind: TypeKind
    type_name: str
    property_name: str
    property_type: PropType
    backfill: bool = False

    def to_json(self) -> Json:
        """Return the JSON form; `backfill` is omitted when false."""
        encoded: Json = {
            "kind": "add_property",
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "property_name": self.property_name,
            "property_type": encode_type(self.property_type),
        }
        return {**encoded, "backfill": True} if self.backfill else encoded


@dataclass(frozen=True, slots=True)
class RenameProperty:
    """Rename a property; `type_name` is the new name of its type."""

    type_kind: TypeKind
    type_name: str
    old: str
    new: str

    def to_json(self) -> Json:
        """Return the JSON form."""
        return {
            "kind": "rename_property",
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "from": self.old,
            "to": self.new,
        }


@dataclass(frozen=True, slots=True)
class AddConstraint:
    """Add an index, which the next optimize builds, a unique constraint on a new property, or the key of an edge.

    The key of an edge gives existing edges new ids.
    """

    type_kind: TypeKind
    type_name: str
    constraint: Constraint

    def to_json(self) -> Json:
        """Return the JSON form."""
        return {
            "kind": "add_constraint",
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "constraint": encode_constraint(self.constraint),
        }


@dataclass(frozen=True, slots=True)
class RemoveConstraint:
    """Remove the key of an edge; existing edges keep their ids."""

    type_kind: TypeKind
    type_name: str
    constraint: Constraint

    def to_json(self) -> Json:
        """Return the JSON form."""
        return {
            "kind": "remove_constraint",
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "constraint": encode_constraint(self.constraint),
        }


@dataclass(frozen=True, slots=True)
class ExtendEnum:
    """Add values to an enum."""

    type_kind: TypeKind
    type_name: str
    property_name: str
    added_values: tuple[str, ...]

    def to_json(self) -> Json:
        """Return the JSON form."""
        return {
            "kind": "extend_enum",
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "property_name": self.property_name,
            "added_values": list(self.added_values),
        }


@dataclass(frozen=True, slots=True)
class UpdateTypeMetadata:
    """Change the description or instruction of a type; `annotations` are the new ones."""

    type_kind: TypeKind
    name: str
    annotations: tuple[Annotation, ...]

    def to_json(self) -> Json:
        """Return the JSON form."""
        return {
            "kind": "update_type_metadata",
            "type_kind": self.type_kind,
            "name": self.name,
            "annotations": [encode_annotation(item) for item in self.annotations],
        }


@dataclass(frozen=True, slots=True)
class UpdatePropertyMetadata:
    """Change the description of a property; `annotations` are the new ones."""

    type_kind: TypeKind
    type_name: str
    property_name: str
    annotations: tuple[Annotation, ...]

    def to_json(self) -> Json:
        """Return the JSON form."""
        return {
            "kind": "update_property_metadata",
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "property_name": self.property_name,
            "annotations": [encode_annotation(item) for item in self.annotations],
        }


@dataclass(frozen=True, slots=True)
class ChangeEmbedding:
    """Change how the vectors of a property are computed. Stored vectors are kept, and are stale until a refresh.

    None declares no embedding with a provider.
    """

    type_kind: TypeKind
    type_name: str
    property_name: str
    before: Embed | None
    after: Embed | None

    def to_json(self) -> Json:
        """Return the JSON form."""
        return {
            "kind": "change_embedding",
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "property_name": self.property_name,
            "from": _encode_embed(self.before),
            "to": _encode_embed(self.after),
        }


def _encode_embed(embed: Embed | None) -> Json | None:
    if embed is None:
        return None
    return {"source": embed.source, "model": embed.model, "provider": embed.provider}


@dataclass(frozen=True, slots=True)
class DropType:
    """Drop a type and its rows; `hard` also makes earlier versions unreadable."""

    type_kind: TypeKind
    name: str
    mode: DropMode

    def to_json(self) -> Json:
        """Return the JSON form."""
        return {"kind": "drop_type", "type_kind": self.type_kind, "name": self.name, "mode": self.mode}


@dataclass(frozen=True, slots=True)
class DropProperty:
    """Drop a property and its values; `hard` also makes earlier versions unreadable."""

    type_kind: TypeKind
    type_name: str
    property_name: str
    mode: DropMode

    def to_json(self) -> Json:
        """Return the JSON form."""
        return {
            "kind": "drop_property",
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "property_name": self.property_name,
            "mode": self.mode,
        }


@dataclass(frozen=True, slots=True)
class UnsupportedChange:
    """A change that migrations do not support; it makes the whole plan unsupported."""

    entity: str
    reason: str
    code: str | None = None

    def to_json(self) -> Json:
        """Return the JSON form; a missing code is omitted."""
        encoded: Json = {"kind": "unsupported_change", "entity": self.entity, "reason": self.reason}
        return encoded if self.code is None else {**encoded, "code": self.code}


MigrationStep: TypeAlias = (
    AddType
    | RenameType
    | AddProperty
    | RenameProperty
    | AddConstraint
    | RemoveConstraint
    | ExtendEnum
    | UpdateTypeMetadata
    | UpdatePropertyMetadata
    | ChangeEmbedding
    | DropType
    | DropProperty
    | UnsupportedChange
)


@dataclass(frozen=True)
class MigrationPlan:
    """The steps from an accepted schema to a desired one, in the order in which they are applied."""

    steps: tuple[MigrationStep, ...] = ()

    @cached_property
    def supported(self) -> bool:
        """Whether every step is supported."""
        return self.refusal is None

    @cached_property
    def refusal(self) -> str | None:
        """Error message of an unsupported plan: ``[CODE] reason`` of the first unsupported step."""
        for step in self.steps:
            if isinstance(step, UnsupportedChange):
                return step.reason if step.code is None else f"[{step.code}] {step.reason}"
        return None

    def to_json(self) -> Json:
        """Return the JSON form."""
        return {"supported": self.supported, "steps": [step.to_json() for step in self.steps]}
