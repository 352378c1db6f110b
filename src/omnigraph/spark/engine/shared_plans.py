"""Subplans that several DataFrames of a load share: they are computed once and persisted until the rows are staged.

Spark replaces a subplan by its persisted rows wherever a later query has an equal one, so the DataFrames themselves
stay as they are. A DataFrame of Spark Connect shows no plan to its client; nothing is persisted there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from omnigraph.spark.engine.task_errors import raise_task_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The setting of a session that turns persisting off.
SETTING: Final = "spark.omnigraph.load.persistShared"
# Rows that Spark has already, or reads faster than it would store them.
_CHEAP: Final = frozenset({"LocalRelation", "OneRowRelation", "Range", "InMemoryRelation"})
_WRAPPERS: Final = frozenset({"SubqueryAlias", "View"})
_COLUMNAR: Final = (" parquet", " orc")


@contextmanager
def shared_plans(frames: Sequence[DataFrame]) -> Iterator[int]:
    """Persist what at least two DataFrames have in common while the context is open; yield the number of subplans.

    A subplan that the caller has persisted stays persisted afterwards.
    """
    persisted: list[DataFrame] = []
    try:
        if len(frames) > 1 and all(hasattr(frame, "_jdf") for frame in frames):
            for frame in common_plans(frames):
                # Two tasks could compute the same rows at the same time, so they are computed now.
                persisted.append(frame.persist())
                with raise_task_errors():
                    frame.count()
        yield len(persisted)
    finally:
        for frame in persisted:
            frame.unpersist()


def common_plans(frames: Sequence[DataFrame]) -> list[DataFrame]:
    """Return the largest subplans that at least two DataFrames have and that are not persisted yet."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    session = frames[0].sparkSession
    if session.conf.get(SETTING, "true") != "true":
        return []
    plans = [frame._jdf.queryExecution().analyzed() for frame in frames]  # noqa: SLF001
    known: dict[int, list[tuple[Any, set[int]]]] = {}
    for number, plan in enumerate(plans):
        for part in _subplans(plan):
            _owners(known, part).add(number)
    found: list[DataFrame] = []
    chosen: list[Any] = []
    pending = list(plans)
    while pending:
        plan = pending.pop()
        if len(_owners(known, plan)) < 2:
            pending += _children(plan)
        elif not _is_cheap(plan) and not any(plan.sameResult(other) for other in chosen):
            chosen.append(plan)
            classic: Any = session
            made = classic._jvm.org.apache.spark.sql.classic.Dataset.ofRows(  # noqa: SLF001
                classic._jsparkSession,  # noqa: SLF001
                plan,
            )
            frame = ClassicFrame(made, classic)
            level = frame.storageLevel
            if not level.useMemory and not level.useDisk:
                found.append(frame)
    return found


def _owners(known: dict[int, list[tuple[Any, set[int]]]], plan: Any) -> set[int]:
    """Return the numbers of the DataFrames with a subplan. Equal hashes are compared."""
    same_hash = known.setdefault(plan.semanticHash(), [])
    for other, owners in same_hash:
        if plan.sameResult(other):
            return owners
    same_hash.append((plan, set()))
    return same_hash[-1][1]


def _subplans(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _children(plan):
        yield from _subplans(child)


def _children(plan: Any) -> list[Any]:
    children = plan.children()
    return [children.apply(at) for at in range(children.size())]


def _is_cheap(plan: Any) -> bool:
    """Return whether a subplan is no more than rows in memory or the scan of a columnar file."""
    children = _children(plan)
    # A projection of all columns equals its input.
    while len(children) == 1 and (plan.nodeName() in _WRAPPERS or plan.sameResult(children[0])):
        plan, children = children[0], _children(children[0])
    name: str = plan.nodeName()
    if name in _CHEAP:
        return True
    return not children and plan.toString().rstrip().endswith(_COLUMNAR)
