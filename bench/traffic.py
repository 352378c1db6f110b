"""Many clients of other processes against one server, and the proof of what it told them.

    python -m bench.traffic --seconds 60

Runs twice: undisturbed, and with the server killed and started again several times. Afterwards the graph itself is
compared with the journals of all clients; the result is 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.traffic_check import Verdict, check_traffic
from bench.traffic_client import PATIENCE, Crowd
from bench.traffic_graph import make_graph
from bench.traffic_journal import UNANSWERED, UNSENT, Entry, Story, read_stories
from bench.traffic_server import ServerProcess

ROOT = Path(__file__).parents[1]
_SHOWN = 20
_FATES = {UNANSWERED: "cut off", UNSENT: "not sent"}


@dataclass(frozen=True, slots=True)
class Plan:
    """A run: so many clients in so many processes at a server that is up for so many seconds, and killed so often.

    `writers` of the clients write to main as well; the others read, and count on branches of their own.
    """

    seconds: float = 60.0
    clients: int = 64
    writers: int = 64
    processes: int = 4
    kills: int = 0
    seed: int = 1


@dataclass(frozen=True)
class Outcome:
    """What clients noted, and what the graph says about it. `seconds` is how long requests were sent."""

    stories: Sequence[Story]
    verdict: Verdict
    exit_code: int
    seconds: float

    def entries(self) -> Iterator[Entry]:
        """Every request of every client."""
        return (entry for story in self.stories for entry in story.entries)

    @property
    def wrong(self) -> list[str]:
        """Everything that must not be."""
        ended = [] if self.exit_code == 0 else [f"the server ended with {self.exit_code}"]
        return [*ended, *self.verdict.wrong]


def run_traffic(plan: Plan, folder: Path) -> Outcome:
    """Make a graph in an empty folder, let clients at it over a server, and check what they leave."""
    config = make_graph(folder)
    journals = folder / "journals"
    journals.mkdir()
    with (
        ServerProcess(config, folder / "tokens.json", folder / "server.log") as server,
        _crowds(plan, server.url, journals) as processes,
    ):
        began = time.perf_counter()
        _tell(processes)
        for number in range(plan.kills + 1):
            if number:
                server.kill()
                server.start()
            time.sleep(plan.seconds / (plan.kills + 1))
        _tell(processes)
        for process in processes:
            if process.wait(2 * PATIENCE):
                raise RuntimeError(f"a process of clients ended with {process.returncode}")
        took = time.perf_counter() - began
        exit_code = server.stop()
    stories = read_stories(journals)
    verdict = check_traffic(folder, stories, killed=plan.kills > 0)
    return Outcome(stories, verdict, exit_code, took)


@contextmanager
def _crowds(plan: Plan, url: str, journals: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes of clients, all ready; gone afterwards in any case."""
    share = -(-plan.clients // plan.processes)
    crowds = [
        Crowd(
            url,
            str(journals),
            first,
            min(share, plan.clients - first),
            plan.clients,
            plan.writers,
            plan.seed,
        )
        for first in range(0, plan.clients, share)
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.traffic_client", crowd.to_argument()],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for crowd in crowds
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a process of clients did not start")
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _tell(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Say to all clients that they are to begin, or to come to an end."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


# --- the table ----------------------------------------------------------------------------------------------


def render(plan: Plan, outcome: Outcome) -> Table:
    """A line for each kind of request: how many, how long they took, what became of those that were not done."""
    title = f"{plan.clients} clients, {plan.writers} of them writers, for {outcome.seconds:.0f} s"
    title += f", the server killed {plan.kills} times" if plan.kills else ""
    table = Table("request", "sent", "done", "done/s", "p50 ms", "p95 ms", "p99 ms", "others", title=title)
    for column in table.columns[1:7]:
        column.justify = "right"
    by_op: dict[str, list[Entry]] = {}
    for entry in outcome.entries():
        by_op.setdefault(entry.op, []).append(entry)
    for op in sorted(by_op):
        table.add_row(op, *_cells(by_op[op], outcome.seconds))
    table.add_section()
    table.add_row("all", *_cells(list(outcome.entries()), outcome.seconds))
    return table


def _cells(entries: Sequence[Entry], seconds: float) -> list[str]:
    took = [entry.ms for entry in entries if entry.is_done]
    middle = [f"{value:.0f}" for value in np.quantile(took, (0.5, 0.95, 0.99))] if took else ["-"] * 3
    others = Counter(entry.status for entry in entries if not entry.is_done)
    fates = ", ".join(f"{count} × {_FATES.get(status, status)}" for status, count in sorted(others.items()))
    return [f"{len(entries):,}", f"{len(took):,}", f"{len(took) / seconds:.1f}", *middle, fates]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line. The result is 1 when anything was wrong, else 0."""
    options = _parser().parse_args(arguments)
    console = Console()
    console.width = max(console.width, 116)
    wrong = 0
    for kills in (0, options.kills) if options.kills else (0,):
        plan = Plan(options.seconds, options.clients, options.writers, options.processes, kills, options.seed)
        if options.dir is not None:
            folder = options.dir / f"kills-{kills}"
            folder.mkdir(parents=True)
            outcome = run_traffic(plan, folder)
        else:
            with tempfile.TemporaryDirectory(prefix="omnigraph-traffic-") as made:
                outcome = run_traffic(plan, Path(made))
        console.print(render(plan, outcome))
        verdict = outcome.verdict
        console.print(
            f"{verdict.commits:,} commits, {verdict.recovered} published for a dead server;"
            f" verified in {verdict.seconds:.1f} s",
            highlight=False,
        )
        for text in outcome.wrong[:_SHOWN]:
            console.print(f"WRONG {text}", style="bold red", markup=False, highlight=False)
        wrong += len(outcome.wrong)
    if wrong:
        console.print(f"{wrong} things are wrong; repeat with --seed {options.seed}", style="bold red")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.traffic", description=__doc__)
    default = Plan()
    parser.add_argument("--seconds", type=float, default=default.seconds, help="how long each run takes")
    parser.add_argument("--clients", type=int, default=default.clients, help="how many clients at a time")
    parser.add_argument("--writers", type=int, default=default.writers, help="how many of them write to main")
    parser.add_argument("--processes", type=int, default=default.processes, help="in how many processes")
    parser.add_argument("--kills", type=int, default=8, help="how often the second run kills the server")
    parser.add_argument("--seed", type=int, default=default.seed, help="what the clients' choices begin from")
    parser.add_argument("--dir", type=Path, help="leave graphs, journals and logs in this new folder")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
