"""Cold start: the first query of a new process, with imports, opening, compiling and reading.

Run as a module, it is that process: it prints the milliseconds from before the imports to the result. Files may be
in the page cache of the operating system, as on a machine in use.
"""

from __future__ import annotations

import time

_BEGIN = time.perf_counter()

import json  # noqa: E402 - the clock starts before the imports
import subprocess  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

ROOT = Path(__file__).parents[1]


def first_question(system: str, folder: Path, shape: str, params: dict[str, Any]) -> float:
    """Return the milliseconds that a new process takes for its first query."""
    said = json.dumps({"system": system, "folder": str(folder), "shape": shape, "params": params})
    command = [sys.executable, "-m", "bench.cold", said]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return float(done.stdout)


def _answer(said: dict[str, Any]) -> None:
    from bench.shapes import COLD

    shape = next(item for item in COLD if item.name == said["shape"])
    folder = Path(said["folder"])
    if said["system"] == "omnigraph":
        from bench.ours import OmniGraph

        rows = OmniGraph.open(folder).read(shape, said["params"])
    else:
        from bench.ladybug_peer import Ladybug

        rows = Ladybug.open(folder).read(shape, said["params"])
    if rows.num_rows == 0:
        raise SystemExit(f"{said['system']} returned no rows for {shape.name}")


if __name__ == "__main__":
    _answer(json.loads(sys.argv[1]))
    sys.stdout.write(f"{(time.perf_counter() - _BEGIN) * 1e3:.3f}\n")
