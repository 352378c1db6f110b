"""The identity of machines and processes, to detect whether the owner of an intent is still alive."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path

# The states in which Linux lists a process that has ended.
_ENDED = frozenset("ZXx")


@cache
def this_machine() -> str:
    """Return a text that identifies the machine, its boot and the process namespace."""
    parts = [socket.gethostname(), *_kernel_ids("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid")]
    return "|".join(parts)


def _kernel_ids(boot: str, namespace: str) -> Iterator[str]:
    if Path(boot).exists():
        yield Path(boot).read_text().strip()
    if Path(namespace).is_symlink():
        yield str(Path(namespace).readlink())


def process_start(pid: int) -> str:
    """Return the start time of a process in the units of the system; empty if the process has ended.

    A zombie counts as ended, because its parent may never collect it.

    >>> process_start(os.getpid()) != ""
    True
    """
    try:
        # The process name in parentheses may contain spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return "" if fields[0] in _ENDED else fields[19]
    except (FileNotFoundError, ProcessLookupError):
        pass
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "alive"
    return "alive"
