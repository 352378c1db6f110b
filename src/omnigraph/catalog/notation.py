"""How types, constraints and annotations are written in messages: the notation of the schema language."""

from __future__ import annotations

from omnigraph.lang.schema import Annotation, Check, Constraint, Index, Key, LiteralValue, Range, Unique
from omnigraph.lang.types import PropType

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def literal_text(value: LiteralValue) -> str:
    r"""A literal as a schema text would write it.

    >>> literal_text('say "hi"'), literal_text(True), literal_text(0.5)
    ('"say \\"hi\\""', 'true', '0.5')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPES)}"'
    return repr(value)


def annotation_text(annotation: Annotation) -> str:
    """An annotation as a schema text would write it.

    >>> annotation_text(Annotation("embed", "title", (("model", "m"),)))
    '@embed("title", model="m")'
    """
    arguments = [] if annotation.value is None else [literal_text(annotation.value)]
    arguments += [f"{name}={literal_text(value)}" for name, value in annotation.kwargs]
    return f"@{annotation.name}({', '.join(arguments)})" if arguments else f"@{annotation.name}"


def constraint_text(constraint: Constraint) -> str:
    """A constraint as a schema text would write it.

    >>> constraint_text(Range("age", 0, None)), constraint_text(Index(("a", "b")))
    ('@range(age, 0..)', '@index(a, b)')
    """
    if isinstance(constraint, Range):
        low, high = ("" if bound is None else repr(bound) for bound in (constraint.min, constraint.max))
        return f"@range({constraint.property}, {low}..{high})"
    if isinstance(constraint, Check):
        return f"@check({constraint.property}, {literal_text(constraint.pattern)})"
    return f"@{constraint_name(constraint)}({', '.join(constraint.columns)})"


def constraint_name(constraint: Key | Unique | Index) -> str:
    """The name after the ``@`` of a constraint over columns."""
    return type(constraint).__name__.lower()


def plan_type_text(prop_type: PropType) -> str:
    """A type as migration plans show it: like its display form, except for enums.

    >>> from omnigraph.lang.types import Scalar
    >>> plan_type_text(PropType(Scalar.STRING, nullable=True, enum_values=("a", "b")))
    'Enum(a|b)?'
    """
    if prop_type.enum_values is None:
        return str(prop_type)
    return f"Enum({'|'.join(prop_type.enum_values)}){'?' if prop_type.nullable else ''}"
