"""Counters of ended processes, so that the metrics of a server never decrease while it runs.

A process that is restarted counts from 0. Each process therefore writes its counters to a file whenever it reports
them, and its successor adds the values in this file to its own.
"""

from __future__ import annotations

from pathlib import Path

from omnigraph.server.workers.metric_sums import select_counters, sum_metrics


def history_path(control_path: str) -> Path:
    """Return the file of the counters of a process, beside its control socket."""
    return Path(control_path).with_suffix(".counters")


def read_counters(path: Path) -> str:
    """Return the counters that a process and its predecessors last reported; nothing if they never did."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


class MetricHistory:
    """Adds the counters of the predecessors of this process. Belongs to one thread.

    A process that is killed loses what it counted after its last report, which no reader has seen.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = read_counters(path)

    def add(self, own: bytes) -> bytes:
        """Return the metrics of this process with the counters of its predecessors, and record the counters."""
        total = sum_metrics([own.decode(), self._before]) if self._before else own.decode()
        temporary = self._path.with_suffix(".new")
        temporary.write_text(select_counters(total), encoding="utf-8")
        # A process can be killed at any time; the file is complete or the previous one.
        temporary.replace(self._path)
        return total.encode()
