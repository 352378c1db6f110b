"""`omnigraph pipeline`: validation and status on the command line. Runs are tested with Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import ROOT, run

SHOP = ROOT / "examples" / "shop"


def test_pipeline_validate_prints_its_sources_and_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DB", "jdbc:derby:secret")
    done = run("pipeline", "validate", str(SHOP / "pipeline.yaml"))
    assert done.stdout == "OK    pipeline shop: 4 sources, 5 targets\n"


def test_pipeline_validate_mistake_names_line_and_key(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("graph: g\nsources:\n  a: {format: csv, path: x}\nnodes:\n  N: {from: b}\n")
    done = run("pipeline", "validate", str(file))
    assert done.code == 1
    assert f"{file}: line 5: nodes.N.from: unknown source or view 'b'" in done.stderr


def test_pipeline_status_of_a_pipeline_without_runs_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_DB", "jdbc:derby:secret")
    for name in ("pipeline.yaml", "schema.pg"):
        (tmp_path / name).write_text((SHOP / name).read_text())
    run("init", "--schema", str(tmp_path / "schema.pg"), str(tmp_path / "shop.omni"))
    done = run("pipeline", "status", str(tmp_path / "pipeline.yaml"), "--json")
    assert json.loads(done.stdout) == {
        "pipeline": "shop",
        "branch": "main",
        "published": [],
        "waiting": [],
        "empty_branches": [],
    }
    assert "no published runs" in run("pipeline", "status", str(tmp_path / "pipeline.yaml")).stdout
