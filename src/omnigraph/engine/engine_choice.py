"""Who does a piece of work: this process, Spark's tasks, or whichever of them suits its size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, get_args

from omnigraph.errors import InvalidInput
from omnigraph.extras import is_installed

# Runs a function over items, each in a task of its own, and returns the results in their order.
RunTasks: TypeAlias = Callable[[Sequence[Any], Callable[[Any], Any]], list[Any]]
Engine: TypeAlias = Literal["auto", "local", "spark"]


def check_engine(engine: Engine) -> None:
    """Refuse an engine that there is not."""
    if engine not in get_args(Engine):
        raise InvalidInput(f"unknown engine '{engine}'", hint=f"one of {', '.join(get_args(Engine))}")


def wants_spark(engine: Engine, *, in_memory: bool, large: bool) -> bool:
    """Whether work is one for Spark: asked for, or left open, `large`, and Spark is installed.

    What is in the memory of this process is never left to others, and refused when they are asked for.

    >>> wants_spark("spark", in_memory=False, large=False), wants_spark("local", in_memory=False, large=True)
    (True, False)
    """
    check_engine(engine)
    if engine == "auto":
        return large and not in_memory and is_installed("spark")
    if engine == "spark" and in_memory:
        raise InvalidInput(
            "what is in the memory of this process is out of reach for Spark's tasks",
            hint="use a path or s3://, or engine='local'",
        )
    return engine == "spark"
