"""Run the query benchmarks and print a table: ``python -m bench.run --help``."""

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
# Above this load average, the benchmark does not have one core for itself.
BUSY = 1.0

Say = Callable[[str], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line. Return 1 if the results of two systems differ, else 0."""
    options = _parser().parse_args(arguments)
    console = Console()
    # Use a wide table even if the output is not a terminal.
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
    parser.add_argument("--dir", type=Path, help="create the graphs in this new folder and keep them")
    parser.add_argument(
        "--systems", default=",".join(LOADERS), help="systems to measure, separated by commas"
    )
    parser.add_argument("--only", default="", help="only shapes whose name contains this")
    parser.add_argument(
        "--turns", type=int, default=Effort().turns, help="maximum number of turns for each system and shape"
    )
    parser.add_argument(
        "--seconds", type=float, default=Effort().seconds, help="approximate time for each shape"
    )
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
        say(f"other programs use this machine (load average {busy:.1f}): the ratios are imprecise")
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

    Cold starts are measured first, while no other process has the files open. Writes follow the reads, because they
    change the data.
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
    """Measure cold starts, in sequence. Lance is not measured."""
    names = [loader.name for loader in loaders if loader.name != RawLance.name]
    results: list[Result] = []
    for shape in COLD:
        title = f"cold start: {shape.name}"
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
    """Load the graph into each system."""
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
    """Return a separate stream for each shape, so that omitting one does not change the others."""
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
