"""Runs a module as `python -m` would, but without pandas.

    python -m tests.support.lean tests.support.workload '…'

pyarrow imports pandas when it finds it. Nothing that a worker does needs it, and it is a third of the time that a
process takes to start, of which the fault tests need hundreds.
"""

from __future__ import annotations

import runpy
import sys
from importlib.machinery import ModuleSpec


class _Without:
    """Finds no pandas."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("a worker does without pandas", name=name)
        return None


if __name__ == "__main__":
    sys.meta_path.insert(0, _Without)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
