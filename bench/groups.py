"""Writes to one branch per second: one thread against many threads of one handle, on disk and on slow S3.

    python -m bench.groups [--threads 16] [--writes 320] [--latency 0.02]

Both sides of each ratio are measured in one run. The S3 server of the tests runs in a process of its own and
answers every request after the latency.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import omnigraph as og

SCHEMA: Final = "node Person { name: String @key  age: I32? }\n"
ADD: Final = "query add($n: String, $a: I32) { insert Person { name: $n, age: $a } }"
SERVE: Final = "--serve"


def writes_per_second(graph: og.Graph, threads: int, writes: int) -> float:
    """Return how many inserts of one row per second some threads commit to the main branch."""
    start = threading.Barrier(threads + 1)

    def work(thread: int) -> None:
        start.wait()
        for number in range(writes // threads):
            graph.mutate(ADD, {"n": f"{threads}-{thread}-{number}", "a": number})

    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(work, number) for number in range(threads)]
        start.wait()
        began = time.perf_counter()
        for item in running:
            item.result()
    return (writes // threads) * threads / (time.perf_counter() - began)


def compare(uri: str, options: Mapping[str, str], threads: int, writes: int) -> tuple[float, float]:
    """Return the rate of one thread and that of many threads, on a new graph."""
    with og.init(uri, SCHEMA, storage_options=dict(options)) as graph:
        for number in range(5):
            graph.mutate(ADD, {"n": f"warm-{number}", "a": number})
        return writes_per_second(graph, 1, max(writes // threads, 20)), writes_per_second(
            graph, threads, writes
        )


@contextmanager
def slow_bucket(latency: float) -> Iterator[tuple[str, dict[str, str]]]:
    """Run an S3 server in a process of its own; yields the address of a bucket and the options to reach it."""
    command = [sys.executable, "-m", "bench.groups", SERVE, str(latency)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        uri, *pairs = server.stdout.readline().split()
        yield uri, dict(pair.split("=", 1) for pair in pairs)
        server.stdin.close()


def serve(latency: float) -> None:
    """Serve a bucket until the standard input is closed."""
    from tests.support.s3 import running_server

    with running_server() as server, server.bucket() as bucket, bucket.seam.recording(latency):
        pairs = [f"{name}={value}" for name, value in bucket.options.items()]
        sys.stdout.write(" ".join([bucket.uri, *pairs]) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


def main() -> None:
    """Measure and print both ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--writes", type=int, default=320)
    parser.add_argument("--latency", type=float, default=0.02)
    parser.add_argument(SERVE, type=float, metavar="LATENCY", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        serve(given.serve)
        return
    with tempfile.TemporaryDirectory() as folder:
        report("local disk", *compare(str(Path(folder) / "graph"), {}, given.threads, given.writes))
    with slow_bucket(given.latency) as (uri, options):
        measured = compare(f"{uri}/graph", options, given.threads, given.writes)
        report(f"S3 after {given.latency * 1000:g} ms", *measured)


def report(place: str, one: float, many: float) -> None:
    """Print one line of the result."""
    sys.stdout.write(f"{place}: 1 thread {one:.1f}/s, all threads {many:.1f}/s, {many / one:.1f}x\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
