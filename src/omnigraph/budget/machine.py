"""The memory and the processors that this process may use: those of the machine, or of its container.

A container is a control group of Linux (cgroup). Kubernetes, Docker and systemd set its limits.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/")
_GROUPS: Final = "sys/fs/cgroup"
# Version 1 has a folder for each resource, in which a container sees its own group.
_MEMORY_V1: Final = f"{_GROUPS}/memory/memory.limit_in_bytes"
_QUOTA_V1: Final = f"{_GROUPS}/cpu/cpu.cfs_quota_us"
_PERIOD_V1: Final = f"{_GROUPS}/cpu/cpu.cfs_period_us"


def usable_memory(root: Path = _ROOT) -> int:
    """Return the bytes of memory of the machine, or the limit of the container if that is lower."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [_read(group / "memory.max") for group in _groups(root)]
    limits.append(_read(root / _MEMORY_V1))
    return min(machine, *(int(words[0]) for words in limits if words and words[0].isdigit()), machine)


def usable_processors(root: Path = _ROOT) -> int:
    """Return the number of processors that the process may run on, rounded up if it is a share of one."""
    count = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quotas = [_read(group / "cpu.max") for group in _groups(root)]
    quotas.append([*_read(root / _QUOTA_V1), *_read(root / _PERIOD_V1)])
    shares = [
        math.ceil(int(words[0]) / int(words[1]))
        for words in quotas
        if len(words) == 2 and all(word.isdigit() and int(word) > 0 for word in words)
    ]
    return max(1, min(count, *shares, count))


def _groups(root: Path) -> Iterator[Path]:
    """Yield the control group of this process and those above it. Each of them can have limits."""
    top = root / _GROUPS
    own = next((word[3:] for word in _read(root / "proc/self/cgroup") if word.startswith("0::")), "")
    group = top / own.lstrip("/")
    while group != top and top in group.parents:
        yield group
        group = group.parent
    yield top


def _read(file: Path) -> list[str]:
    """Return the words of a file; none if it does not exist."""
    try:
        return file.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return []
