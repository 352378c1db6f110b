"""The soak at a tiny size."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench.soak import soak


def test_soak_prints_a_line_for_each_checkpoint_and_equals_the_replay(tmp_path: Path) -> None:
    options = argparse.Namespace(
        commits=24,
        processes=2,
        branches=2,
        retention="keep=5",
        durability="os",
        output=tmp_path / "lines.json",
    )
    assert soak(tmp_path, options)
    (line,) = json.loads(options.output.read_text())
    assert line["commits"] == 24
    assert line["files"] > 0
    assert line["live_rows"] > 0
