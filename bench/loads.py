"""Measure loads and print a table: ``python -m bench.loads --help``."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.load_data import Amount, write_files
from bench.loaders import LOADERS, Took

ROOT = Path(__file__).resolve().parents[1]
# Our load, the peer, and the goal: the fraction of the rate of the peer.
GOALS = (
    ("ours from records", "raw from records", 0.5),
    ("ours from records, index later", "raw from records", 0.5),
    ("ours from Parquet", "raw from Parquet", None),
    ("ours from Parquet", "ladybug from Parquet", 1.0),
    ("ours from Parquet, index later", "ladybug from Parquet", 1.0),
)
WIDTH = 116


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.loads", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the graph: 0.01 for a smoke test")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--only", default="", help="only loads whose name contains this")
    options = parser.parse_args(arguments)
    console = Console()
    console.width = max(console.width, WIDTH)
    amount = Amount.scaled(options.scale)
    chosen = [name for name in LOADERS if options.only in name]
    if find_spec("ladybug") is None:
        chosen = [name for name in chosen if not name.startswith("ladybug")]
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        found = measure(amount, chosen, Path(folder), console)
    console.print(render(amount, found))
    if options.json is not None:
        document = {"amount": asdict(amount), "loads": {name: asdict(took) for name, took in found.items()}}
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


def measure(amount: Amount, chosen: Sequence[str], folder: Path, console: Console) -> dict[str, Took]:
    """Run each load once, in sequence, each in a new process and an empty folder."""
    data = folder / "data"
    write_files(amount, data)
    found: dict[str, Took] = {}
    for number, name in enumerate(chosen):
        target = folder / str(number)
        target.mkdir()
        done = subprocess.run(
            [sys.executable, "-m", "bench.loaders", name, str(data), str(target / "graph")]
            if name.startswith("ours")
            else [sys.executable, "-m", "bench.loaders", name, str(data), str(target)],
            cwd=ROOT,
            env=dict(os.environ),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found[name] = Took(**json.loads(done.stdout.splitlines()[-1]))
        stages = ", ".join(f"{stage} {value:.1f}" for stage, value in found[name].stages.items())
        console.print(
            f"{name}: {found[name].seconds:.1f} s{f' ({stages})' if stages else ''}",
            style="dim",
            highlight=False,
        )
    return found


def render(amount: Amount, found: Mapping[str, Took]) -> Table:
    """Return the table of rates and ratios of rates. Higher is better."""
    table = Table(
        title=f"loads of {amount.people:,} nodes and {amount.follows:,} edges", title_justify="left"
    )
    table.add_column("load", no_wrap=True)
    for heading in ("rows/s", "peak MB", "peer", "peer rows/s", "ratio", "goal"):
        table.add_column(heading, justify="left" if heading == "peer" else "right")
    table.add_column("ok", justify="center")
    for ours, peer, goal in GOALS:
        if ours not in found or peer not in found:
            continue
        mine, theirs = amount.rows / found[ours].seconds, amount.rows / found[peer].seconds
        ratio = mine / theirs
        ok = "" if goal is None else "[green]yes[/]" if ratio >= goal else "[red]NO[/]"
        table.add_row(
            ours,
            f"{mine:,.0f}",
            f"{found[ours].peak_mb:,.0f}",
            peer,
            f"{theirs:,.0f}",
            f"{ratio:.2f}x",
            "" if goal is None else f"{goal:.1f}x",
            ok,
        )
    return table


if __name__ == "__main__":
    raise SystemExit(main())
