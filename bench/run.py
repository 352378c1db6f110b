"""Measure everything and print the table: ``python -m bench.run --help``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from bench.cold import first_question
from bench.data import SEED, Size, make_tables, write_parquet
from bench.draw import Draw
from bench.ladybug_peer import Ladybug
from bench.lance_peer import RawLance
from bench.measure import Effort, Timing, measure
from bench.ours import OmniGraph
from bench.report import Result, render
from bench.shapes import COLD, COLD_GOAL_MS, READS, WRITES
from bench.systems import Loader

LOADERS: dict[str, Loader] = {"omnigraph": OmniGraph, "ladybug": Ladybug, "lance": RawLance}
COLD_ROUNDS = 5
WIDTH = 116
# A load above this means that a system must share even its first core.
BUSY = 1.0

Say = Callable[[str], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line. The result is 1 when two systems answered differently, else 0."""
    options = _parser().parse_args(arguments)
    console = Console()
    # The table needs its width also where the output is no terminal.
    console.width = max(console.width, WIDTH)
    chosen = [LOADERS[name] for name in options.systems.split(",")]
    if Ladybug in chosen and find_spec("ladybug") is None:
        console.print("ladybug is not installed; install the optional dependencies `bench`")
        return 2
    effort = Effort(options.turns, options.seconds)
    if options.dir is not None:
        return _run(options, chosen, effort, options.dir, console)
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        return _run(options, chosen, effort, Path(folder), console)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the graph: 0.01 for a smoke test")
    parser.add_argument("--json", type=Path, help="also write the results, with every sample, to this file")
    parser.add_argument("--dir", type=Path, help="make the graphs in this new folder and leave them there")
    parser.add_argument("--systems", default=",".join(LOADERS), help="which to measure, by comma")
    parser.add_argument("--only", default="", help="only shapes whose name contains this")
    parser.add_argument(
        "--turns", type=int, default=Effort().turns, help="turns of each system at a shape, at most"
    )
    parser.add_argument("--seconds", type=float, default=Effort().seconds, help="time for a shape, roughly")
    return parser


def _run(
    options: argparse.Namespace, chosen: Sequence[Loader], effort: Effort, folder: Path, console: Console
) -> int:
    size = Size.scaled(options.scale)
    title = f"{size.people:,} people, {size.friendships:,} friendships; medians of one run"

    def say(text: str) -> None:
        console.print(text, style="dim", highlight=False)

    busy = os.getloadavg()[0]
    if busy > BUSY:
        say(f"other programs keep this machine busy (load {busy:.1f}): the ratios will be rough")
    results = compare(size, chosen, effort, folder, options.only, say)
    console.print(render([line for result in results for line in result.lines], title))
    mismatches = [text for result in results for text in result.mismatches]
    for text in mismatches:
        console.print(f"MISMATCH {text}", style="bold red", markup=False, highlight=False)
    if options.json is not None:
        options.json.write_text(json.dumps(_document(title, chosen, results), indent=2) + "\n")
    return 1 if mismatches else 0


def compare(
    size: Size, loaders: Sequence[Loader], effort: Effort, folder: Path, only: str, say: Say
) -> list[Result]:
    """Load the graph into every system, then measure the shapes whose names contain `only`, side by side.

    The fresh processes are measured first, while nothing else has the files open. The writes come after the
    reads, since they change what is read.
    """
    tables = make_tables(size)
    places = _load(size, loaders, tables, folder, say)
    cold = _measure_cold(loaders, places, tables, effort, only, say)
    return [*_measure_warm(loaders, places, tables, effort, only, say), *cold]


def _measure_warm(
    loaders: Sequence[Loader],
    places: dict[str, Path],
    tables: dict[str, pa.Table],
    effort: Effort,
    only: str,
    say: Say,
) -> list[Result]:
    results: list[Result] = []
    systems = [loader.open(places[loader.name]) for loader in loaders]
    try:
        for shape in (item for item in (*READS, *WRITES) if only in item.name):
            say(shape.name)
            able = [system for system in systems if system.takes(shape)]
            timing = measure(shape, able, _draw(tables, shape.name), effort)
            results.append(Result(timing, shape.goals))
    finally:
        for system in systems:
            system.close()
    return results


def _measure_cold(
    loaders: Sequence[Loader],
    places: dict[str, Path],
    tables: dict[str, pa.Table],
    effort: Effort,
    only: str,
    say: Say,
) -> list[Result]:
    """Fresh processes, one after the other; raw Lance has no first question of its own."""
    names = [loader.name for loader in loaders if loader.name != RawLance.name]
    results: list[Result] = []
    for shape in COLD:
        title = f"fresh process: {shape.name}"
        if only not in title:
            continue
        say(title)
        timing = Timing(title, {name: [] for name in names})
        draw = _draw(tables, title)
        for _ in range(min(COLD_ROUNDS, effort.turns)):
            params = shape.parameters(draw)
            for name in names:
                timing.samples[name].append(first_question(name, places[name], shape.name, params))
        results.append(Result(timing, {"ladybug": None}, COLD_GOAL_MS))
    return results


def _load(
    size: Size, loaders: Sequence[Loader], tables: dict[str, pa.Table], folder: Path, say: Say
) -> dict[str, Path]:
    """Load each system into its folder."""
    files = write_parquet(tables, folder / "parquet")
    places: dict[str, Path] = {}
    for loader in loaders:
        places[loader.name] = folder / loader.name
        places[loader.name].mkdir()
        begin = time.perf_counter()
        loader.load(places[loader.name], tables, files)
        say(f"{loader.name} loaded {size.friendships:,} friendships in {time.perf_counter() - begin:.1f} s")
    return places


def _draw(tables: dict[str, pa.Table], name: str) -> Draw:
    """A stream of its own for each shape, so that leaving one out changes no other."""
    return Draw(tables, SEED + zlib.crc32(name.encode()))


def _document(title: str, loaders: Sequence[Loader], results: Sequence[Result]) -> dict[str, Any]:
    packages = {"omnigraph": "omnigraph", "ladybug": "ladybug", "lance": "pylance"}
    return {
        "title": title,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "versions": {loader.name: version(packages[loader.name]) for loader in loaders},
        "lines": [line.to_json() for result in results for line in result.lines],
        "samples_ms": {result.timing.shape: result.timing.samples for result in results},
        "mismatches": [text for result in results for text in result.mismatches],
    }


if __name__ == "__main__":
    raise SystemExit(main())
