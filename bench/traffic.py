"""Load test: many clients in several processes against one server, with verification of every response.

    python -m bench.traffic --seconds 60

Runs the mix of requests twice: without faults, and with processes of the server killed several times: in turn a
worker, the writer and the parent. Then the graph is compared with the journals of all clients. Two further runs
measure the commits per second of clients that only insert, on one branch and on eight, and the same work is done by
one embedded handle for comparison. The exit code is 1 if there is any violation.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.traffic_check import Verdict, check_traffic
from bench.traffic_client import PATIENCE, Crowd
from bench.traffic_graph import LANES, make_graph
from bench.traffic_journal import UNANSWERED, UNSENT, Entry, Story, read_stories
from bench.traffic_lanes import Ceiling, check_lanes, measure_ceiling
from bench.traffic_server import ServerProcess, processor_seconds

ROOT = Path(__file__).parents[1]
_SHOWN = 20
_FATES = {UNANSWERED: "cut off", UNSENT: "not sent"}


@dataclass(frozen=True, slots=True)
class Plan:
    """A run: the number of clients, processes and kills of the server, and its duration.

    `writers` of the clients also write to main. The others read, and increment counters on separate branches.
    """

    seconds: float = 60.0
    clients: int = 64
    writers: int = 64
    processes: int = 4
    kills: int = 0
    seed: int = 1
    workers: int = 2
    # If not 0, all clients only insert, each on one of so many branches.
    lanes: int = 0


@dataclass(frozen=True)
class Outcome:
    """The journals of the clients and the result of the verification. `seconds` is how long requests were sent.

    `processor` is the processor time by kind of process. A process that was killed is not counted.
    """

    stories: Sequence[Story]
    verdict: Verdict
    exit_code: int
    seconds: float
    processor: Mapping[str, float] = field(default_factory=dict)

    def entries(self) -> Iterator[Entry]:
        """All requests of all clients."""
        return (entry for story in self.stories for entry in story.entries)

    @property
    def wrong(self) -> list[str]:
        """All violations."""
        ended = [] if self.exit_code == 0 else [f"the server exited with {self.exit_code}"]
        return [*ended, *self.verdict.wrong]


def run_traffic(plan: Plan, folder: Path) -> Outcome:
    """Create a graph in an empty folder, run the clients against a server, and verify the graph."""
    config = make_graph(folder)
    journals = folder / "journals"
    journals.mkdir()
    with (
        ServerProcess(config, folder / "tokens.json", folder / "server.log", plan.workers) as server,
        _crowds(plan, server.url, journals) as processes,
    ):
        before = server.processor_seconds()
        began = time.perf_counter()
        _tell(processes)
        for number in range(plan.kills + 1):
            if number:
                _kill(server, plan, number)
            time.sleep(plan.seconds / (plan.kills + 1))
        clients = sum(processor_seconds(process.pid) for process in processes)
        _tell(processes)
        for process in processes:
            if process.wait(2 * PATIENCE):
                raise RuntimeError(f"a client process exited with {process.returncode}")
        took = time.perf_counter() - began
        after = server.processor_seconds()
        processor = {kind: total - before.get(kind, 0.0) for kind, total in after.items()} | {
            "client": clients
        }
        exit_code = server.stop()
    stories = read_stories(journals)
    if plan.lanes:
        wrong = check_lanes(folder, stories, plan.lanes)
        return Outcome(stories, Verdict(tuple(wrong), 0, 0, 0.0), exit_code, took, processor)
    verdict = check_traffic(folder, stories, killed=plan.kills > 0)
    return Outcome(stories, verdict, exit_code, took, processor)


def _kill(server: ServerProcess, plan: Plan, number: int) -> None:
    """Kill a worker, the writer or the parent, in turn. With one process there is only the parent."""
    victims = ("worker-0", "writer-0", None) if plan.workers > 1 else (None,)
    victim = victims[(number - 1) % len(victims)]
    if victim is None:
        server.kill()
        server.start()
    else:
        server.kill_child(victim)


@contextmanager
def _crowds(plan: Plan, url: str, journals: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Start the client processes, and end them when the context exits."""
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
            plan.lanes,
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
                raise RuntimeError("a client process did not start")
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _tell(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Signal all clients to start, or to stop."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


# --- the table ----------------------------------------------------------------------------------------------


def render(plan: Plan, outcome: Outcome) -> Table:
    """Return a table with a line for each kind of request: count, latencies, and the status of failed requests."""
    title = f"{plan.clients} clients, {plan.writers} of them writers, for {outcome.seconds:.0f} s"
    title += f", {plan.kills} kills" if plan.kills else ""
    title += f", inserts on {plan.lanes} {'branch' if plan.lanes == 1 else 'branches'}" if plan.lanes else ""
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
    """Run from the command line. Return 1 if there is any violation, else 0."""
    options = _parser().parse_args(arguments)
    console = Console()
    console.width = max(console.width, 116)
    base = Plan(
        options.seconds,
        options.clients,
        options.writers,
        options.processes,
        seed=options.seed,
        workers=options.workers,
    )
    plans = [base, replace(base, lanes=1), replace(base, lanes=LANES)]
    if options.kills:
        plans.append(replace(base, kills=options.kills))
    wrong = 0
    for plan in plans:
        with _folder(options.dir, f"lanes-{plan.lanes}-kills-{plan.kills}") as folder:
            outcome = run_traffic(plan, folder)
            console.print(render(plan, outcome))
            if not plan.kills:
                console.print(_render_processor(outcome), highlight=False)
            verdict = outcome.verdict
            if plan.lanes:
                console.print("each acknowledged insert is there once", highlight=False)
            else:
                console.print(
                    f"{verdict.commits:,} commits, {verdict.recovered} rolled forward after a kill;"
                    f" verified in {verdict.seconds:.1f} s",
                    highlight=False,
                )
            if plan.lanes == LANES:
                console.print(_render_ceiling(measure_ceiling(folder, options.seconds / 4, LANES)))
        for text in outcome.wrong[:_SHOWN]:
            console.print(f"WRONG {text}", style="bold red", markup=False, highlight=False)
        wrong += len(outcome.wrong)
    if wrong:
        console.print(f"{wrong} violations; repeat with --seed {options.seed}", style="bold red")
    return 1 if wrong else 0


def _render_processor(outcome: Outcome) -> str:
    requests = sum(1 for _ in outcome.entries()) or 1
    shares = (f"{kind} {1000 * taken / requests:.2f} ms" for kind, taken in sorted(outcome.processor.items()))
    return f"processor time per request: {', '.join(shares)}"


def _render_ceiling(ceiling: Ceiling) -> str:
    return (
        f"embedded, one process: {ceiling.commits:.0f} commits per second on one branch,"
        f" {ceiling.commits_on_lanes:.0f} on {LANES}; point query {ceiling.point_ms:.2f} ms"
    )


@contextmanager
def _folder(parent: Path | None, name: str) -> Iterator[Path]:
    """Return a new folder, which is kept if the caller named a parent."""
    if parent is not None:
        folder = parent / name
        folder.mkdir(parents=True)
        yield folder
    else:
        with tempfile.TemporaryDirectory(prefix="omnigraph-traffic-") as made:
            yield Path(made)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.traffic", description=__doc__)
    default = Plan()
    parser.add_argument("--seconds", type=float, default=default.seconds, help="duration of each run")
    parser.add_argument("--clients", type=int, default=default.clients, help="number of concurrent clients")
    parser.add_argument(
        "--writers", type=int, default=default.writers, help="number of clients that write to main"
    )
    parser.add_argument("--processes", type=int, default=default.processes, help="number of client processes")
    parser.add_argument("--kills", type=int, default=8, help="number of processes killed in the last run")
    parser.add_argument("--seed", type=int, default=default.seed, help="random seed of the clients")
    parser.add_argument("--workers", type=int, default=default.workers, help="number of read workers")
    parser.add_argument("--dir", type=Path, help="keep graphs, journals and logs in this new folder")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
