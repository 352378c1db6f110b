"""The catalogue of migration codes. Codes are a contract: they are only ever added to."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

Tier: TypeAlias = Literal["validated", "destructive"]

FAMILIES = ("DS", "MF", "CD", "BC", "NM", "OW", "NL", "VE", "ED", "LK")

ADD_REQUIRED = "OG-MF-103"
CHANGE_TYPE = "OG-MF-106"


@dataclass(frozen=True, slots=True)
class Code:
    """One code: how dangerous the change is that it names, and whether the planner still emits it."""

    code: str
    tier: Tier
    emitted: bool
    severity: Literal["error"] = "error"

    @property
    def family(self) -> str:
        """The two letters in the middle."""
        return self.code.split("-")[1]


CODES = MappingProxyType(
    {
        item.code: item
        for item in (
            # Drops are supported now, so nothing emits the DS codes any more; their meaning stays taken.
            Code("OG-DS-101", "destructive", emitted=False),
            Code("OG-DS-102", "destructive", emitted=False),
            Code("OG-DS-103", "destructive", emitted=False),
            Code("OG-DS-104", "destructive", emitted=False),
            Code("OG-DS-105", "destructive", emitted=False),
            Code(ADD_REQUIRED, "validated", emitted=True),
            Code("OG-MF-104", "validated", emitted=False),
            Code(CHANGE_TYPE, "destructive", emitted=True),
        )
    }
)
