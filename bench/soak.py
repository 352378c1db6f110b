"""Soak: many one-row commits with a read after each, by several processes on several branches.

Prints, at 1,000, 10,000 and 100,000 commits, processor time, latency, memory, and files and bytes of the graph.
Costs that follow the change and not the history stay the same from line to line. At the end every branch is
compared with a replay of the journals. The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import omnigraph as og
from bench.soak_worker import SCHEMA, Report, Work, run

CHECKPOINTS = (1_000, 10_000, 100_000)
# Times are those of this many commits before a checkpoint.
WINDOW = 1_000
ALL = "query all() { match { $i: Item } return { $i.name, $i.value } }"
COLUMNS = (
    "commits", "seconds", "cpu_ms", "write_ms", "write_p99", "read_ms", "read_p99", "conflicts", "rss_mb", "files",
    "mb", "live_rows", "files_per_row", "kb_per_row",
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """The measurements at a checkpoint. Times of one commit with its read, in milliseconds.

    `rss_mb` is the memory of the largest process.
    """

    commits: int
    seconds: float
    cpu_ms: float
    write_ms: float
    write_p99: float
    read_ms: float
    read_p99: float
    conflicts: int
    rss_mb: float
    files: int
    mb: float
    live_rows: int
    files_per_row: float
    kb_per_row: float


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run the soak and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=CHECKPOINTS[-1], help="number of commits")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--branches", type=int, default=3)
    parser.add_argument("--retention", default="default", help="retention policy of the graph")
    parser.add_argument("--durability", choices=["full", "os"], default="os")
    parser.add_argument(
        "--output", type=Path, help="write the lines to this file as JSON while the soak runs"
    )
    parser.add_argument("--folder", type=Path, help="keep the graph in this new folder")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="omnigraph-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        ok = soak(folder, options)
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if ok else 1)


def soak(folder: Path, options: argparse.Namespace) -> bool:
    """Run the processes, print a line at each checkpoint, and return whether the graph equals the replay."""
    uri = str(folder / "graph.omni")
    branches = ("main", *(f"branch-{number}" for number in range(options.branches - 1)))
    with og.init(uri, schema=SCHEMA, durability="os") as graph:
        graph.set_settings(retention=options.retention)
        for branch in branches[1:]:
            graph.branches.create(branch)
        say(
            f"{options.processes} processes, {len(branches)} branches, retention {graph.settings().retention}"
        )
    totals = [number for number in CHECKPOINTS if number < options.commits] + [options.commits]
    count = options.processes
    shares = tuple(total // count for total in totals)
    spawn = multiprocessing.get_context("spawn")
    workers = []
    for number in range(count):
        name = f"w{number}"
        ours, theirs = spawn.Pipe()
        work = Work(uri, name, branches, shares, folder / f"{name}.journal", options.durability)
        process = spawn.Process(target=run, args=(work, theirs, WINDOW // count))
        process.start()
        theirs.close()
        workers.append((process, ours))
    connections = [connection for _, connection in workers]
    say(" ".join(f"{name:>13}" for name in COLUMNS))
    lines: list[Line] = []
    began = time.monotonic()
    try:
        for share in shares:
            reports = [receive(connection, folder, count * share) for connection in connections]
            line = measure(uri, branches, share * count, time.monotonic() - began, reports)
            lines.append(line)
            say(" ".join(f"{value:>13,.10g}" for value in asdict(line).values()))
            if options.output is not None:
                options.output.write_text(json.dumps([asdict(item) for item in lines], indent=1) + "\n")
            for connection in connections:
                connection.send("go")
        closed: list[float] = [connection.recv() for connection in connections]
        say(f"slowest close: {max(closed):.2f} s")
    finally:
        for process, _ in workers:
            process.join(timeout=60)
            if process.is_alive():
                process.kill()
    return compare(uri, branches, folder)


def receive(connection: Connection, folder: Path, total: int) -> Report:
    """Wait for the report of a process, and print the progress of all meanwhile."""
    while not connection.poll(30):
        made = sum(path.read_bytes().count(b"\n") for path in folder.glob("*.journal"))
        sys.stderr.write(f"  {made:,} of {total:,} commits\n")
    report: Report = connection.recv()
    return report


def measure(
    uri: str, branches: Sequence[str], commits: int, seconds: float, reports: Sequence[Report]
) -> Line:
    """Return the line of a checkpoint. No process writes meanwhile."""
    writes = sorted(value for report in reports for value in report.writes)
    reads = sorted(value for report in reports for value in report.reads)
    cpu = sum(report.cpu for report in reports)
    sizes = list(file_sizes(Path(uri)))
    with og.open(uri, mode="r") as graph:
        live = sum(len(graph.query(ALL, branch=branch)) for branch in branches)
    return Line(
        commits,
        round(seconds, 1),
        round(1e3 * cpu / len(writes), 2),
        round(1e3 * statistics.median(writes), 2),
        round(1e3 * writes[int(0.99 * len(writes))], 2),
        round(1e3 * statistics.median(reads), 2),
        round(1e3 * reads[int(0.99 * len(reads))], 2),
        sum(report.conflicts for report in reports),
        round(max(report.rss for report in reports), 1),
        len(sizes),
        round(sum(sizes) / 1e6, 1),
        live,
        round(len(sizes) / live, 2),
        round(sum(sizes) / 1e3 / live, 2),
    )


def file_sizes(root: Path) -> list[int]:
    """Return the size of each file below a folder. Upkeep may remove files meanwhile."""
    sizes = []
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                sizes.append(os.stat(f"{folder}/{name}").st_size)  # noqa: PTH116 - many files
            except FileNotFoundError:
                continue
    return sizes


def compare(uri: str, branches: Sequence[str], folder: Path) -> bool:
    """Return whether every branch has exactly the rows that the journals leave."""
    expected: dict[str, dict[str, int]] = {branch: {} for branch in branches}
    for path in folder.glob("*.journal"):
        for text in path.read_text(encoding="utf-8").splitlines():
            branch, name, value = text.split()
            if value == "-":
                expected[branch].pop(name, None)
            else:
                expected[branch][name] = int(value)
    ok = True
    with og.open(uri, mode="r") as graph:
        for branch in branches:
            rows = graph.query(ALL, branch=branch).rows()
            found = {row["i.name"]: row["i.value"] for row in rows}
            ok &= found == expected[branch]
            state = "equals the replay" if found == expected[branch] else "DIFFERS from the replay"
            say(f"{branch}: {len(found)} rows, {state}")
        report = graph.verify(quick=True)
        say(f"verify: {'ok' if report.ok else report.damage}")
    return ok and report.ok


if __name__ == "__main__":
    main()
