"""Settings of the interpreter of a server process."""

from __future__ import annotations

import subprocess
import sys


def test_freeze_heap_excludes_loaded_modules_from_collection() -> None:
    # In a process of its own, because objects stay frozen.
    code = (
        "import gc\n"
        "from omnigraph.server.interpreter import freeze_heap\n"
        "before = len(gc.get_objects())\n"
        "freeze_heap()\n"
        "assert gc.get_freeze_count() > before / 2 > len(gc.get_objects())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
