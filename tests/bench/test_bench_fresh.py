"""The benchmark of reads after writes at a tiny size."""

from __future__ import annotations

from pathlib import Path

from bench.fresh import build, measure, report


def test_fresh_read_benchmark_finds_every_new_edge_and_prints_a_line(tmp_path: Path) -> None:
    samples = measure(build(tmp_path, 40), 40, foreign=False, turns=2)
    assert [len(item) for item in (samples.alone, samples.write, samples.hop)] == [2, 2, 2]
    assert report(40, samples, "own").split()[:2] == ["40", "own"]
