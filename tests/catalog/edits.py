"""Random edits that a plan must support: renames, additions, drops, extended enums, indexes and descriptions."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from omnigraph.catalog.shape import canonical_constraint
from omnigraph.lang.schema import Annotation, AnyType, EdgeType, NodeType, Property, Schema, TypeKind
from omnigraph.lang.types import PropType, Scalar
from tests.catalog.strategies import EDGE_NAMES, NODE_NAMES, PROPERTY_NAMES, TEXTS, VALUES


@st.composite
def edited(draw: st.DrawFn, accepted: Schema) -> Schema:
    """Draw a schema that a supported plan leads to. Dropped names and old rename hints may occur again."""
    desired = accepted
    for _ in range(draw(st.integers(0, 4))):
        kind: TypeKind = draw(st.sampled_from(["node", "edge"]))
        edit = draw(st.sampled_from([_rename_type, _add_type, _drop_type, _edit_property, _edit_property]))
        desired = edit(draw, accepted, desired, kind)
    return desired


def _group(schema: Schema, kind: TypeKind) -> tuple[AnyType, ...]:
    return schema.nodes if kind == "node" else schema.edges


def _hint(old: str) -> Annotation:
    return Annotation("rename_from", old)


def _without_hint(notes: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    return tuple(note for note in notes if note.name != "rename_from")


def _with_type(schema: Schema, old: AnyType | None, new: AnyType | None) -> Schema:
    def changed(group: tuple[AnyType, ...]) -> list[AnyType]:
        kept = [item for item in group if item is not old]
        return sorted(kept, key=lambda item: item.name)

    nodes = [item for item in changed(schema.nodes) if isinstance(item, NodeType)]
    edges = [item for item in changed(schema.edges) if isinstance(item, EdgeType)]
    if isinstance(new, NodeType):
        nodes.append(new)
    if isinstance(new, EdgeType):
        edges.append(new)
    return Schema(
        schema.interfaces,
        tuple(sorted(nodes, key=lambda item: item.name)),
        tuple(sorted(edges, key=lambda item: item.name)),
    )


def _fresh_type(draw: st.DrawFn, accepted: Schema, desired: Schema, kind: TypeKind) -> str | None:
    pool = NODE_NAMES if kind == "node" else EDGE_NAMES
    used = {item.name for schema in (accepted, desired) for item in _group(schema, kind)}
    free = [name for name in pool if name not in used]
    return draw(st.sampled_from(free)) if free else None


def _rename_type(draw: st.DrawFn, accepted: Schema, desired: Schema, kind: TypeKind) -> Schema:
    known = {item.name for item in _group(accepted, kind)}
    # One rename per plan, because a hint refers to the accepted schema, not to an intermediate name.
    candidates = [item for item in _group(desired, kind) if item.name in known]
    name = _fresh_type(draw, accepted, desired, kind)
    if not candidates or name is None:
        return desired
    item = draw(st.sampled_from(candidates))
    notes = (*_without_hint(item.annotations), _hint(item.name))
    desired = _with_type(desired, item, replace(item, name=name, annotations=notes))
    if kind == "edge":
        return desired
    edges = (
        replace(
            edge,
            source=name if edge.source == item.name else edge.source,
            target=name if edge.target == item.name else edge.target,
        )
        for edge in desired.edges
    )
    return replace(desired, edges=tuple(edges))


def _add_type(draw: st.DrawFn, accepted: Schema, desired: Schema, kind: TypeKind) -> Schema:
    name = _fresh_type(draw, accepted, desired, kind)
    if name is None or not desired.nodes:
        return desired
    props = (Property("age", PropType(Scalar.I32)), Property("body", PropType(Scalar.STRING)))
    if kind == "node":
        return _with_type(desired, None, NodeType(name, props))
    ends = st.sampled_from([node.name for node in desired.nodes])
    return _with_type(desired, None, EdgeType(name, props, source=draw(ends), target=draw(ends)))


def _drop_type(draw: st.DrawFn, accepted: Schema, desired: Schema, kind: TypeKind) -> Schema:
    group = _group(desired, kind)
    known = {item.name for item in _group(accepted, kind)}
    if not group:
        return desired
    item = draw(st.sampled_from(group))
    if kind == "node" and (len(group) == 1 or item.name not in known):
        return desired
    desired = _with_type(desired, item, None)
    kept = tuple(edge for edge in desired.edges if item.name not in (edge.source, edge.target))
    return replace(desired, edges=kept) if kind == "node" else desired


def _edit_property(draw: st.DrawFn, accepted: Schema, desired: Schema, kind: TypeKind) -> Schema:
    before = {item.name: item for item in _group(accepted, kind)}
    candidates = [item for item in _group(desired, kind) if item.name in before]
    if not candidates:
        return desired
    item = draw(st.sampled_from(candidates))
    old = before[item.name]
    edit = draw(st.sampled_from([_rename_property, _add_property, _drop_property, _change_property]))
    return _with_type(desired, item, edit(draw, old, item))


def _fresh_property(draw: st.DrawFn, old: AnyType, item: AnyType) -> str | None:
    free = [name for name in PROPERTY_NAMES if name not in old.by_name and name not in item.by_name]
    return draw(st.sampled_from(free)) if free else None


def _with_property(item: AnyType, gone: Property | None, new: Property | None) -> AnyType:
    props = [prop for prop in item.properties if prop is not gone] + ([new] if new else [])
    return replace(item, properties=tuple(sorted(props, key=lambda prop: prop.name)))


def _rename_property(draw: st.DrawFn, old: AnyType, item: AnyType) -> AnyType:
    candidates = [prop for prop in item.properties if prop.name in old.by_name]
    name = _fresh_property(draw, old, item)
    if not candidates or name is None:
        return item
    prop = draw(st.sampled_from(candidates))
    notes = (*_without_hint(prop.annotations), _hint(prop.name))
    item = _with_property(item, prop, replace(prop, name=name, annotations=notes))
    renamed = {prop.name: name}

    def followed(note: Annotation) -> Annotation:
        return replace(note, value=name) if (note.name, note.value) == ("embed", prop.name) else note

    return replace(
        item,
        constraints=tuple(canonical_constraint(each, renamed) for each in item.constraints),
        properties=tuple(
            replace(each, annotations=tuple(followed(note) for note in each.annotations))
            for each in item.properties
        ),
    )


def _add_property(draw: st.DrawFn, old: AnyType, item: AnyType) -> AnyType:
    name = _fresh_property(draw, old, item)
    return item if name is None else _with_property(item, None, Property(name, PropType(Scalar.I64, True)))


def _drop_property(draw: st.DrawFn, old: AnyType, item: AnyType) -> AnyType:
    used: set[str] = {"src", "dst"}
    for each in item.constraints:
        used |= set(getattr(each, "columns", ())) or {getattr(each, "property", "")}
    embedded = {str(note.value) for prop in item.properties for note in prop.annotations}
    candidates = [
        prop for prop in item.properties if prop.name in old.by_name and prop.name not in used | embedded
    ]
    return _with_property(item, draw(st.sampled_from(candidates)), None) if candidates else item


def _change_property(draw: st.DrawFn, old: AnyType, item: AnyType) -> AnyType:
    candidates = [prop for prop in item.properties if prop.name in old.by_name]
    if not candidates:
        return item
    prop = draw(st.sampled_from(candidates))
    notes = [note for note in prop.annotations if note.name != "description"]
    notes.append(Annotation("description", draw(TEXTS)))
    if prop.annotation("index") is None:
        notes.append(Annotation("index"))
    changed = replace(prop, annotations=tuple(notes))
    if prop.type.enum_values is not None:
        values = {*prop.type.enum_values, draw(st.sampled_from(VALUES))}
        changed = replace(changed, type=replace(prop.type, enum_values=tuple(sorted(values))))
    return _with_property(item, prop, changed)
