"""The choice between this process and Spark for a piece of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, get_args

from omnigraph.errors import InvalidInput
from omnigraph.extras import is_installed

# Runs a function over items, each in its own task, and returns the results in order.
RunTasks: TypeAlias = Callable[[Sequence[Any], Callable[[Any], Any]], list[Any]]
Engine: TypeAlias = Literal["auto", "local", "spark"]


def check_engine(engine: Engine) -> None:
    """Raise `InvalidInput` for an unknown engine."""
    if engine not in get_args(Engine):
        raise InvalidInput(f"unknown engine '{engine}'", hint=f"use one of {', '.join(get_args(Engine))}")


def wants_spark(engine: Engine, *, in_memory: bool, large: bool) -> bool:
    """Return whether to run work on Spark: requested, or ``auto`` for `large` work if Spark is installed.

    Data in the memory of this process is never processed by Spark; requesting Spark for it raises `InvalidInput`.

    >>> wants_spark("spark", in_memory=False, large=False), wants_spark("local", in_memory=False, large=True)
    (True, False)
    """
    check_engine(engine)
    if engine == "auto":
        return large and not in_memory and is_installed("spark")
    if engine == "spark" and in_memory:
        raise InvalidInput(
            "data in the memory of this process is out of reach for Spark tasks",
            hint="use a path or s3://, or engine='local'",
        )
    return engine == "spark"
