"""Variables of a pipeline file: ``${NAME}`` stands for an environment variable, and its value is never printed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# Shorter values, such as a port, occur in messages by coincidence.
_MIN_SECRET = 4


def process_variables() -> Mapping[str, str]:
    """Return the environment variables of this process."""
    return os.environ


@dataclass(frozen=True)
class Secrets:
    """The values of variables that a file uses, by name."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    def redact(self, text: str) -> str:
        """Return a text with the names of variables in place of their values.

        >>> Secrets({"DB_URL": "jdbc:x:secret"}).redact("cannot open jdbc:x:secret")
        'cannot open ${DB_URL}'
        """
        for name, value in sorted(self.values.items(), key=lambda item: -len(item[1])):
            if len(value) >= _MIN_SECRET:
                text = text.replace(value, f"${{{name}}}")
        return text


def variable_names(text: str) -> list[str]:
    """Return the names of the variables that a text uses.

    >>> variable_names("${HOST}:$${PORT}")
    ['HOST']
    """
    return [match[1] for match in _VARIABLE.finditer(text) if match[1] is not None]


def substitute(value: Any, variables: Mapping[str, str]) -> Any:
    """Return a value with the variables of all texts in it replaced. ``$$`` stands for a dollar sign.

    >>> substitute({"url": "${HOST}/x", "cost": "$$5"}, {"HOST": "db"})
    {'url': 'db/x', 'cost': '$5'}
    """
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: "$" if match[1] is None else variables[match[1]], value)
    if isinstance(value, Mapping):
        return {name: substitute(item, variables) for name, item in value.items()}
    if isinstance(value, list):
        return [substitute(item, variables) for item in value]
    return value
