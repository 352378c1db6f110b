"""The selection of cuts for the fault tests, the graphs they start from, and the summary at the end.

`OMNIGRAPH_CUTS` is `sample` (the default), `all`, or the number of one cut to repeat. `--log-file=FILE
--log-file-level=INFO` shows how far a long sweep has come.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.abandoned import SWAP
from tests.support.crash import copy_graph, run_traced
from tests.support.s3_seam import Log
from tests.support.workload import KINDS, Setting, Task, prepare_setting

VARIABLE = "OMNIGRAPH_CUTS"
# The properties of tests that are summed up.
COUNTS = ("cuts", "faults", "violations", "kills", "backups", "commits", "optimizations", "files collected")
LOG = logging.getLogger(__name__)


@dataclass
class Cuts:
    """The cuts of one test: those to run, the number that ran, and the failures."""

    test: str
    wanted: str
    record: Callable[[str, object], None]
    count: int = 0
    violations: list[str] = field(default_factory=list)

    def chosen(self, changes: Sequence[str], sample: int = 1, *, including: Sequence[int] = ()) -> list[int]:
        """Return the numbers of the cuts to run, given the changes of a complete run.

        A sample has the required cuts, the cut before the swap that publishes, and others that depend on the
        name of the test.
        """
        numbers = range(1, len(changes) + 1)
        if self.wanted == "all" or not numbers:
            return list(numbers)
        if self.wanted != "sample":
            return [int(self.wanted)]
        swaps = [number for number in numbers if changes[number - 1].startswith(SWAP)]
        others = random.Random(self.test).sample(numbers, k=len(numbers))
        return sorted(list(dict.fromkeys([*including, *swaps[-1:], *others]))[:sample])

    def chosen_requests(self, log: Log, sample: int = 2) -> list[int]:
        """Return the numbers of the requests to cut at, given those of a complete run.

        A sample has the swap that publishes, and others that depend on the name of the test.
        """
        numbers = range(1, len(log.requests) + 1)
        if self.wanted == "all":
            return list(numbers)
        if self.wanted != "sample":
            return [int(self.wanted)]
        requests = enumerate(log.requests, start=1)
        swaps = [at for at, item in requests if item.method == "PUT" and "/__manifest/_versions/" in item.key]
        others = random.Random(self.test).sample(numbers, k=len(numbers))
        return sorted(list(dict.fromkeys([*swaps[-1:], *others]))[:sample])

    @contextmanager
    def watching(self, at: int, cut: str) -> Iterator[None]:
        """Count a cut, and record its failure with the command that repeats it."""
        self.count += 1
        LOG.info("%d: %d, %s", self.count, at, cut)
        try:
            yield
        except Exception as error:
            repeat = f'{VARIABLE}={at} .venv/bin/python -m pytest "{self.test}"'
            self.violations.append(f"cut {at}, before {cut}: {error!r}\n    repeat: {repeat}")
            LOG.exception("violation")

    def report(self, unit: str = "cuts") -> None:
        """Fail if any cut failed, or any of what the unit names: `cuts` or `faults`."""
        self.record(unit, self.count)
        self.record("violations", len(self.violations))
        assert not self.violations, "\n".join(self.violations)


@pytest.fixture(scope="session")
def every_cut() -> bool:
    """Whether to run all cuts."""
    return wanted_cuts() == "all"


@pytest.fixture
def cuts(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Cuts:
    """Return the cuts of the requesting test."""
    return Cuts(request.node.nodeid, wanted_cuts(), record_property)


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Setting], Path]:
    """Return the prepared graph of a setting. It is shared; copy it before use."""
    made: dict[Setting, Path] = {}

    def get(setting: Setting) -> Path:
        if setting not in made:
            made[setting] = tmp_path_factory.mktemp("settings") / setting
            prepare_setting(setting, str(made[setting]))
        return made[setting]

    return get


@pytest.fixture(scope="session")
def changes_of(
    settings: Callable[[Setting], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], list[str]]:
    """Return the changes on disk of an undisturbed write, in order."""
    known: dict[str, list[str]] = {}

    def get(kind: str) -> list[str]:
        if kind not in known:
            uri = copy_graph(settings(KINDS[kind].setting), tmp_path_factory.mktemp("whole") / "graph")
            known[kind] = run_traced(Task(kind, uri)).changes
        return known[kind]

    return get


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the sums of what the tests counted, such as cuts, faults, violations and backups."""
    totals: dict[str, int] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name in COUNTS and report.when == "call":
                    totals[name] = totals.get(name, 0) + int(value)
    if totals:
        terminalreporter.write_line(", ".join(f"{totals[name]} {name}" for name in COUNTS if name in totals))


def wanted_cuts() -> str:
    """Return the selection: `sample`, `all`, or the number of one cut."""
    return os.environ.get(VARIABLE, "sample")
