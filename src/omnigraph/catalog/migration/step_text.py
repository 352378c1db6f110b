"""Migration plans as text."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.catalog.migration.migration_codes import CODES
from omnigraph.catalog.migration.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    ChangeEmbedding,
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
from omnigraph.lang.pg.schema_notation import annotation_text, constraint_text
from omnigraph.lang.schema import Annotation, Embed, Key, TypeKind
from omnigraph.lang.types import PropType


def render_plan(plan: MigrationPlan) -> str:
    """Render one line per step, each after ``- ``, or ``no schema changes`` for an empty plan."""
    return "\n".join(f"- {step_text(step)}" for step in plan.steps) or "no schema changes"


def step_text(step: MigrationStep) -> str:
    """Render a step on one line.

    >>> step_text(AddType("node", "Person"))
    "add node type 'Person'"
    """
    match step:
        case AddType(kind, name):
            return f"add {_type_noun(kind)} '{name}'"
        case RenameType(kind, old, new):
            return f"rename {_type_noun(kind)} '{old}' -> '{new}'"
        case AddProperty(kind, owner, name, prop_type, backfill):
            suffix = " with backfill" if backfill else ""
            return f"add property '{owner}.{name}' ({_type_text(prop_type)}) on {kind} '{owner}'{suffix}"
        case RenameProperty(kind, owner, old, new):
            return f"rename property '{owner}.{old}' -> '{owner}.{new}' on {kind} '{owner}'"
        case AddConstraint(kind, owner, constraint):
            suffix = " with new ids of existing edges" if isinstance(constraint, Key) else ""
            return f"add constraint {constraint_text(constraint)} on {kind} '{owner}'{suffix}"
        case RemoveConstraint(kind, owner, constraint):
            return f"remove constraint {constraint_text(constraint)} from {kind} '{owner}'"
        case ExtendEnum(kind, owner, name, values):
            added = ", ".join(f"+{value}" for value in values)
            return f"extend enum '{owner}.{name}' ({added}) on {kind} '{owner}'"
        case UpdateTypeMetadata(kind, name, annotations):
            return f"update metadata on {kind} '{name}' ({_metadata(annotations)})"
        case UpdatePropertyMetadata(kind, owner, name, annotations):
            return (
                f"update metadata on property '{owner}.{name}' of {kind} '{owner}' ({_metadata(annotations)})"
            )
        case ChangeEmbedding(kind, owner, name, before, after):
            change = f"{_embedding(before)} -> {_embedding(after)}"
            stale = (
                "" if after is None or after.provider is None else "; `embed refresh` recomputes the vectors"
            )
            return f"change embedding '{owner}.{name}' of {kind} '{owner}' ({change}){stale}"
        case DropType(kind, name, mode):
            return f"drop {_type_noun(kind)} '{name}' ({mode} mode)"
        case DropProperty(kind, owner, name, mode):
            return f"drop property '{owner}.{name}' of {kind} '{owner}' ({mode} mode)"
        case UnsupportedChange(entity, reason, code):
            tier = "" if code is None else f" [{code}, {CODES[code].tier}]"
            return f"unsupported change on {entity}{tier}: {reason}"


def _type_text(prop_type: PropType) -> str:
    # Enums have a form of their own in plans.
    if prop_type.enum_values is None:
        return str(prop_type)
    return f"Enum({'|'.join(prop_type.enum_values)}){'?' if prop_type.nullable else ''}"


def _embedding(embed: Embed | None) -> str:
    if embed is None:
        return "none"
    options = (("model", embed.model), ("provider", embed.provider))
    return ", ".join([embed.source, *(f"{name}={value}" for name, value in options if value)])


def _type_noun(kind: TypeKind) -> str:
    return f"{kind} type"


def _metadata(annotations: Iterable[Annotation]) -> str:
    return ", ".join(annotation_text(item) for item in annotations) or "none"
