"""The parameters and the point in time of a query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omnigraph.errors import InvalidInput
from omnigraph.lang import ir


@dataclass(frozen=True, slots=True)
class Bindings:
    """Parameter values in the exact form of their types, and `now` in epoch milliseconds."""

    params: Mapping[str, ir.Value] = field(default_factory=dict)
    now: int = 0

    def value(self, expr: ir.Const | ir.ParamRef | ir.Now) -> ir.Value:
        """Return the value of a constant expression. Raises `InvalidInput` for a parameter outside the enum it is
        used for.
        """
        match expr:
            case ir.Const():
                return expr.value
            case ir.Now():
                return self.now
            case ir.ParamRef():
                value = self.params[expr.name]
                if expr.type.enum_values is not None:
                    _check_members(expr, value)
                return value


def _check_members(param: ir.ParamRef, value: ir.Value) -> None:
    allowed = param.type.enum_values or ()
    for item in value if isinstance(value, tuple) else (value,):
        if item is not None and item not in allowed:
            raise InvalidInput(
                f"param '{param.name}': invalid enum value '{item}' (expected: {', '.join(allowed)})",
                details={"parameter": param.name, "allowed": list(allowed)},
            )
