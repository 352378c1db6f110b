"""Rules for single properties and annotations: names, types, and which annotations are allowed where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from omnigraph.lang.diagnostics import Diagnostics
from omnigraph.lang.pg.schema_ast import AnnotationDecl, Name, PropertyDecl
from omnigraph.lang.pg.text_options import check_text_options
from omnigraph.lang.schema import (
    METRICS,
    VECTOR_INDEX_KINDS,
    Annotation,
    LiteralValue,
    Property,
    TypeKind,
)
from omnigraph.lang.types import MAX_VECTOR_DIM, PropType, Scalar

SYSTEM_COLUMNS = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)
TOMBSTONE = "_tombstone"
PHYSICAL_COLUMNS: dict[TypeKind, frozenset[str]] = {
    "interface": frozenset({"id"}),
    "node": frozenset({"id"}),
    "edge": frozenset({"id", "src", "dst"}),
}
# Mutations use these names for the endpoints of an edge, so that they could never set such a property.
ENDPOINT_WORDS = frozenset({"from", "to"})

_PROPERTY_ONLY = ("key", "unique", "index", "embed", "text")
_ONE_COLUMN = ("key", "unique", "index")
_ONCE_ON_PROPERTY = ("key", "unique", "index", "embed", "text", "description", "rename_from")
_WITH_OPTIONS = ("index", "text")
_ONCE_ON_TYPE = ("description", "instruction", "rename_from")
_INDEX_OPTIONS: dict[str, tuple[str, ...]] = {"kind": VECTOR_INDEX_KINDS, "metric": METRICS}
_EMBED_OPTIONS = ("model", "provider")
_NEEDS_BODY = {
    "range": "@range requires property name and bounds: @range(prop, min..max)",
    "check": '@check requires property name and pattern: @check(prop, "regex")',
}


@dataclass(frozen=True, slots=True)
class DeclaringType:
    """Kind and name of the type whose declaration is compiled."""

    kind: TypeKind
    name: str

    @property
    def subject(self) -> str:
        """Name of the type in messages: ``node Person``."""
        return f"{self.kind} {self.name}"


def compile_property(owner: DeclaringType, decl: PropertyDecl, report: Diagnostics) -> Property:
    """Compile a declared property; rejected annotations are omitted from the result."""
    _check_name(owner, decl, report)
    _check_type(decl, report)
    values = decl.type.enum_values
    kind = decl.type if values is None else replace(decl.type, enum_values=tuple(sorted(set(values))))
    return Property(decl.name, kind, _property_annotations(owner, decl, report))


def compile_type_annotations(
    owner: DeclaringType, annotations: Iterable[AnnotationDecl], report: Diagnostics
) -> tuple[Annotation, ...]:
    """Compile the annotations of a node or edge header."""
    accepted = []
    seen: set[str] = set()
    for item in annotations:
        if item.name in _PROPERTY_ONLY:
            where = (
                "is not supported on edges"
                if owner.kind == "edge"
                else "is only supported on node properties"
                if item.name == "text"
                else "is only supported on node properties or as body constraint"
            )
            hint = (
                "write it in the body: @key(src, dst)"
                if owner.kind == "edge" and item.name == "key"
                else None
            )
            report.add(item.span, f"@{item.name} {where} ({owner.subject})", hint=hint)
        elif item.name in _NEEDS_BODY:
            report.add(item.span, _NEEDS_BODY[item.name])
        elif item.name in seen and item.name in _ONCE_ON_TYPE:
            report.add(item.span, f"{owner.subject} declares @{item.name} multiple times")
        elif _has_text(item, owner.subject, report):
            accepted.append(to_annotation(item))
        seen.add(item.name)
    return tuple(accepted)


def unsupported_shape(name: str, kind: PropType) -> str | None:
    """Return the kind of type, list, blob or vector, that a key, unique, index or embed does not support, or None.

    >>> unsupported_shape("key", PropType(Scalar.BLOB))
    'blob'
    """
    if kind.is_list:
        return "list"
    if kind.scalar is Scalar.BLOB:
        return "blob"
    if kind.scalar is Scalar.VECTOR and name in ("key", "unique"):
        return "vector"
    return None


def to_annotation(decl: AnnotationDecl) -> Annotation:
    """Return the stored form of an annotation; an identifier argument becomes its text."""
    kwargs = tuple(sorted(decl.kwargs)) if decl.name in _WITH_OPTIONS else decl.kwargs
    return Annotation(decl.name, _text(decl.value), kwargs)


def _text(value: LiteralValue | Name | None) -> LiteralValue | None:
    return value.text if isinstance(value, Name) else value


def _check_name(owner: DeclaringType, decl: PropertyDecl, report: Diagnostics) -> None:
    name = decl.name
    if name in SYSTEM_COLUMNS:
        why = "is reserved for a virtual storage system column"
    elif name == TOMBSTONE:
        why = "is reserved for the deletion marker in storage"
    elif name in PHYSICAL_COLUMNS[owner.kind]:
        why = f"is reserved for the physical column '{name}'"
    elif owner.kind == "edge" and name in ENDPOINT_WORDS:
        why = f"is reserved for the '{name}' endpoint in mutations"
    else:
        return
    report.add(decl.span, f"property name '{name}' {why}; choose another name")


def _check_type(decl: PropertyDecl, report: Diagnostics) -> None:
    kind = decl.type
    if kind.dim is not None and kind.dim < 1:
        report.add(decl.type_span, "Vector dimension must be greater than zero")
    elif kind.dim is not None and kind.dim > MAX_VECTOR_DIM:
        message = f"Vector dimension {kind.dim} exceeds maximum supported {MAX_VECTOR_DIM}"
        report.add(decl.type_span, message)
    if kind.is_list and kind.scalar is Scalar.BLOB:
        report.add(decl.type_span, "list of Blob is not supported")
    if kind.enum_values is not None and len(set(kind.enum_values)) < len(kind.enum_values):
        report.add(decl.type_span, "enum type cannot include duplicate values")


def _property_annotations(
    owner: DeclaringType, decl: PropertyDecl, report: Diagnostics
) -> tuple[Annotation, ...]:
    place = f"{owner.name}.{decl.name}"
    accepted = []
    seen: set[str] = set()
    for item in decl.annotations:
        if item.name in seen and item.name in _ONCE_ON_PROPERTY:
            report.add(item.span, f"property {place} declares @{item.name} multiple times")
        elif item.name == "instruction":
            report.add(item.span, f"@instruction is only supported on node and edge types (property {place})")
        elif item.name in _NEEDS_BODY:
            report.add(item.span, _NEEDS_BODY[item.name])
        elif owner.kind == "edge" and item.name in ("key", "embed", "text"):
            message = f"@{item.name} is not supported on edge properties (edge {place})"
            # A property alone seldom identifies an edge, so that the columns of its key are always written out.
            hint = f"write the key in the body: @key(src, dst, {decl.name})" if item.name == "key" else None
            report.add(item.span, message, hint=hint)
        elif item.name in _ONE_COLUMN:
            if _check_column(item, place, decl.type, report):
                accepted.append(to_annotation(item))
        elif item.name == "embed":
            if _check_embed(item, place, decl.type, report):
                accepted.append(to_annotation(item))
        elif item.name == "text":
            if check_text_options(item, place, decl.type, report):
                accepted.append(to_annotation(item))
        elif _has_text(item, f"property {place}", report):
            accepted.append(to_annotation(item))
        seen.add(item.name)
    return tuple(accepted)


def _check_column(item: AnnotationDecl, place: str, kind: PropType, report: Diagnostics) -> bool:
    shape = unsupported_shape(item.name, kind)
    if item.value is not None:
        report.add(item.span, f"@{item.name} on {place} does not accept a value")
    elif shape:
        report.add(item.span, f"@{item.name} is not supported on {shape} property {place}")
    elif item.name == "key" and kind.nullable:
        report.add(item.span, f"@key property {place} cannot be nullable")
    else:
        return _check_options(item, place, kind, report)
    return False


def _check_options(item: AnnotationDecl, place: str, kind: PropType, report: Diagnostics) -> bool:
    """Report invalid options of a constraint on one property; return whether all are valid."""
    before = len(report.recorded)
    if item.kwargs and (item.name != "index" or kind.scalar is not Scalar.VECTOR):
        message = f"@{item.name} on {place} takes no options; only the @index of a Vector property does"
        report.add(item.span, message)
        return False
    names = [name for name, _ in item.kwargs]
    for name, value in item.kwargs:
        if name not in _INDEX_OPTIONS:
            report.add(item.span, f"@index on {place} has unknown option '{name}' (kind and metric exist)")
        elif value not in _INDEX_OPTIONS[name]:
            expected = ", ".join(_INDEX_OPTIONS[name])
            report.add(item.span, f"@index on {place}: {name} must be one of {expected}, got {value}")
        elif names.count(name) > 1:
            report.add(item.span, f"@index on {place} declares '{name}' multiple times")
    return len(report.recorded) == before


def _check_embed(item: AnnotationDecl, place: str, kind: PropType, report: Diagnostics) -> bool:
    before = len(report.recorded)
    shape = unsupported_shape("embed", kind)
    source = _text(item.value)
    if shape:
        report.add(item.span, f"@embed is not supported on {shape} property {place}")
    elif kind.scalar is not Scalar.VECTOR:
        report.add(item.span, f"@embed is only supported on vector properties ({place})")
    if not isinstance(source, str) or not source.strip():
        report.add(item.span, f"@embed on {place} requires a source property name")
    keys = [key for key, _ in item.kwargs]
    for key, value in item.kwargs:
        if key not in _EMBED_OPTIONS:
            # The wording of the public language, which has no providers.
            message = f"@embed on {place} has unknown argument '{key}=' (only 'model' is supported)"
            report.add(item.span, message, hint="besides it, provider= makes writes compute the vectors")
        elif not isinstance(value, str) or not value.strip():
            report.add(item.span, f"@embed on {place} requires a non-empty string for '{key}='")
    for key in _EMBED_OPTIONS:
        if keys.count(key) > 1:
            report.add(item.span, f"@embed on {place} declares '{key}=' multiple times")
    return len(report.recorded) == before


def _has_text(item: AnnotationDecl, subject: str, report: Diagnostics) -> bool:
    """Report an annotation without its required text; return whether the annotation is valid."""
    if item.name not in _ONCE_ON_TYPE:
        return True
    value = _text(item.value)
    blank = not isinstance(value, str) or not value.strip()
    if item.name == "rename_from" and (blank or item.kwargs):
        report.add(item.span, f"@rename_from on {subject} requires exactly one non-blank name")
    elif blank:
        report.add(item.span, f"@{item.name} on {subject} requires a non-empty value")
    else:
        return True
    return False
