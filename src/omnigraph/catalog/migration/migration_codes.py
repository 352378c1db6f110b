"""Migration codes. Codes are part of the public contract: they are never removed or changed."""

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
    """A code, its tier, and whether the planner still emits it."""

    code: str
    tier: Tier
    emitted: bool
    severity: Literal["error"] = "error"

    @property
    def family(self) -> str:
        """The two letters in the middle of the code."""
        return self.code.split("-")[1]


CODES = MappingProxyType(
    {
        item.code: item
        for item in (
            # Drops are supported, so that the DS codes are no longer emitted. They stay reserved.
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
