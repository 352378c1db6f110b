"""What the golden corpora share: an input file and, beside it, a file with what is expected of it.

With OMNIGRAPH_UPDATE_GOLDEN=1 the expected files are written anew. Read every difference before keeping it: the
language definition decides what is right, not the code.
"""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parent


def cases(folder: str, suffix: str) -> list[str]:
    """The names of a corpus' input files, without their suffix."""
    return sorted(path.stem for path in (GOLDEN / folder).glob(f"*{suffix}"))


def input_text(folder: str, file: str) -> str:
    return (GOLDEN / folder / file).read_text(encoding="utf-8")


def expected_text(folder: str, case: str, actual: str) -> str:
    """What the case's expected file says, after `actual` was written there if that was asked for."""
    expected = GOLDEN / folder / f"{case}.expected"
    if os.environ.get("OMNIGRAPH_UPDATE_GOLDEN") == "1":
        expected.write_text(actual, encoding="utf-8")
    return expected.read_text(encoding="utf-8")
