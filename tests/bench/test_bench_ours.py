"""Our side of the benchmark at a tiny size: what `.gq` answers is what walking the graph finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.data import Size, make_tables
from bench.draw import Draw
from bench.measure import Effort, measure, same_rows
from bench.ours import OmniGraph
from bench.run import main
from bench.shapes import NEIGHBOURS, READS, WRITES
from tests.bench.walk import ANSWERS, Walk, Walking

TINY = Size.scaled(0.001)


def test_our_answers_are_those_of_the_walk_before_and_after_writes(tmp_path: Path) -> None:
    tables = make_tables(TINY)
    OmniGraph.load(tmp_path, tables, {})
    ours, walking = OmniGraph.open(tmp_path), Walking(Walk(tables))
    for shape in READS:
        assert measure(shape, [walking, ours], Draw(tables, 3), Effort(turns=1)).mismatches == []
    meet = WRITES[1].parameters(Draw(tables, 5))
    ours.write(WRITES[1], meet)
    walking.walk.knows[meet["n"]].append(meet["m"])
    question = {"n": meet["n"]}
    assert same_rows(ours.read(NEIGHBOURS, question), walking.read(NEIGHBOURS, question), ordered=False)
    ours.close()


def test_the_whole_run_prints_every_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    arguments = ["--systems", "omnigraph,lance", "--scale", "0.001", "--turns", "1", "--json", str(file)]
    assert main(arguments) == 0
    lines = json.loads(file.read_text(encoding="utf-8"))["lines"]
    assert {line["shape"] for line in lines} >= set(ANSWERS)
    assert all(line["ours_ms"] is not None for line in lines)
    assert "MISMATCH" not in capsys.readouterr().out
