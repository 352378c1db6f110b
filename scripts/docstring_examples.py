"""A griffe extension that renders the doctests of docstrings as code blocks in the Python API reference."""

from __future__ import annotations

import re
from typing import Any

import griffe

# From a prompt to the next empty line.
DOCTEST = re.compile(r"^>>> .*?(?=\n[ ]*\n|\Z)", flags=re.MULTILINE | re.DOTALL)


class DocstringExamples(griffe.Extension):
    """Fence the doctests of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object, if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
