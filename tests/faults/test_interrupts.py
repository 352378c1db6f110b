"""Ctrl-C raises KeyboardInterrupt wherever it arrives, never a storage error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import HANG
from tests.support.workers import ROOT

pytestmark = pytest.mark.faults

# Reads until it is interrupted. The signal arrives during a scan, outside of Python code.
READER = """
import os, signal, sys, threading
from omnigraph.graph.repository import Repository
from tests.support.workload import PERSON, catalog, change, pairs, write
graph = Repository.init(sys.argv[1], catalog(), durability="os")
write(graph, change(insert=pairs(*range(200_000))))
snapshot = graph.snapshot()
# Lance looks for signals ten times a second: one scan must take longer than that.
SLOW = " OR ".join(f"regexp_like(id, '(a|b|c)+{number}$')" for number in range(60))
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    for _ in range(1_000):
        snapshot.scan(PERSON, where=SLOW)
except BaseException as error:
    print(type(error).__name__)
"""


def test_a_scan_that_is_interrupted_says_so(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", READER, str(tmp_path / "graph")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=True,
    )
    assert found.stdout == "KeyboardInterrupt\n", found.stderr
