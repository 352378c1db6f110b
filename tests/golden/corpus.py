"""Golden corpora: input files, each with a file of the expected output beside it.

OMNIGRAPH_UPDATE_GOLDEN=1 rewrites the expected files. Review every difference: the language specification defines
the correct output, not the code.
"""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parent


def cases(folder: str, suffix: str) -> list[str]:
    """Return the names of the input files of a corpus, without suffix."""
    return sorted(path.stem for path in (GOLDEN / folder).glob(f"*{suffix}"))


def input_text(folder: str, file: str) -> str:
    return (GOLDEN / folder / file).read_text(encoding="utf-8")


def expected_text(folder: str, case: str, actual: str) -> str:
    """Return the content of the expected file; write `actual` to it first when an update is requested."""
    expected = GOLDEN / folder / f"{case}.expected"
    if os.environ.get("OMNIGRAPH_UPDATE_GOLDEN") == "1":
        expected.write_text(actual, encoding="utf-8")
    return expected.read_text(encoding="utf-8")
