"""Upkeep in tests: passes at once, and a retention policy that protects no young files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta

from omnigraph.errors import NotFound
from omnigraph.graph.repository import Repository
from omnigraph.maintain import settings
from omnigraph.maintain.settings import RetentionSetting, change_settings
from omnigraph.maintain.upkeep import Upkeep, UpkeepReport
from omnigraph.maintain.upkeep_state import KEY, UpkeepState

ZERO = timedelta(0)


@contextmanager
def without_minimum() -> Iterator[None]:
    """Accept a retention policy that protects no recent states, which is safe while only one process works."""
    usual = settings.MIN_OLDER_THAN
    settings.MIN_OLDER_THAN = ZERO  # type: ignore[misc]
    try:
        yield
    finally:
        settings.MIN_OLDER_THAN = usual  # type: ignore[misc]


def perform_upkeep(graph: Repository, *, keep: int, thinned: timedelta = ZERO) -> UpkeepReport | None:
    """Perform a pass that retains the newest commits of each branch, whatever their age."""
    with without_minimum():
        change_settings(graph, retention=RetentionSetting(keep, ZERO, thinned))
        with suppress(NotFound):
            state = UpkeepState.from_bytes(graph.objects.get(KEY).data)
            graph.objects.put(KEY, replace(state, next_version=0).to_bytes())
        return Upkeep(graph, every=1).run_pass()
