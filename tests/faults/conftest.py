"""How much of the fault tests to run, the graphs they start from, and the count at the end.

`OMNIGRAPH_CUTS` is `sample` (the default), `all`, or the number of the one cut to repeat.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.crash import spread
from tests.support.workload import Setting, prepare_setting

VARIABLE = "OMNIGRAPH_CUTS"


@pytest.fixture(scope="session")
def every_cut() -> bool:
    """Whether to leave nothing out."""
    return os.environ.get(VARIABLE, "sample") == "all"


@pytest.fixture(scope="session")
def choose_cuts() -> Callable[[int, int], list[int]]:
    """Which of so many cuts to run; the second number says how many make a sample."""
    wanted = os.environ.get(VARIABLE, "sample")

    def choose(count: int, sample: int) -> list[int]:
        if wanted == "all":
            return list(range(1, count + 1))
        return spread(count, sample) if wanted == "sample" else [int(wanted)]

    return choose


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Setting], Path]:
    """The prepared graph of a setting, made once; copy it before use."""
    made: dict[Setting, Path] = {}

    def get(setting: Setting) -> Path:
        if setting not in made:
            made[setting] = tmp_path_factory.mktemp("settings") / setting
            prepare_setting(setting, str(made[setting]))
        return made[setting]

    return get


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many cuts ran and how many of them left something wrong."""
    totals = {"cuts": 0, "violations": 0}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name in totals and report.when == "call":
                    totals[name] += int(value)
    if totals["cuts"]:
        terminalreporter.write_line(f"{totals['cuts']} cuts, {totals['violations']} violations")
