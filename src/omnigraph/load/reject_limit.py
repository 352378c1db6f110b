"""The number of rejected records up to which a load is committed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from omnigraph.errors import InvalidInput

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%", re.ASCII)
_NUMBER = re.compile(r"\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class RejectLimit:
    """A number of records, or a percentage of the records of the input.

    >>> RejectLimit.parse("0.5%").is_exceeded(5, 1000), RejectLimit.parse("0.5%").is_exceeded(6, 1000)
    (False, True)
    >>> RejectLimit.parse(0).is_exceeded(1, 1000)
    True
    """

    number: Decimal
    is_percentage: bool = False

    @classmethod
    def parse(cls, value: Any) -> RejectLimit:
        """Parse the argument `max_rejects`: a number, or a text such as ``12`` or ``0.5%``."""
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return cls(Decimal(value))
        text = value.strip() if isinstance(value, str) else ""
        if _NUMBER.fullmatch(text):
            return cls(Decimal(text))
        found = _PERCENT.fullmatch(text)
        if found is None or Decimal(found[1]) > 100:
            raise InvalidInput(
                f"max_rejects: expected a number of records or a percentage, got {value!r}",
                hint="such as 100 or '0.5%'",
            )
        return cls(Decimal(found[1]), is_percentage=True)

    def __str__(self) -> str:
        return f"{self.number}%" if self.is_percentage else f"{self.number:,}"

    def is_exceeded(self, rejected: int, records: int) -> bool:
        """Return whether so many rejected records of an input are too many."""
        return rejected * 100 > self.number * records if self.is_percentage else rejected > self.number
