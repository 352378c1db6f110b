"""Memory and processors of a container, from the files of its control group."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.budget.machine import usable_memory, usable_processors

GIB = 1 << 30


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("files", "memory", "processors"),
    [
        ({}, None, None),
        # A container sees its own group at the top.
        ({"sys/fs/cgroup/memory.max": "268435456", "sys/fs/cgroup/cpu.max": "50000 100000"}, GIB // 4, 1),
        ({"sys/fs/cgroup/memory.max": "max", "sys/fs/cgroup/cpu.max": "max 100000"}, None, None),
        # A service of systemd has a group of its own, below one with a lower limit.
        (
            {
                "proc/self/cgroup": "0::/system.slice/omnigraph.service",
                "sys/fs/cgroup/system.slice/omnigraph.service/memory.max": "536870912",
                "sys/fs/cgroup/system.slice/memory.max": "134217728",
            },
            GIB // 8,
            None,
        ),
        (
            {
                "proc/self/cgroup": "9:memory:/docker/x\n5:cpu:/docker/x",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "100000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            GIB // 4,
            1,
        ),
        (
            {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            None,
            None,
        ),
    ],
)
def test_limits_of_the_container_apply_if_they_are_lower(
    tmp_path: Path, files: dict[str, str], memory: int | None, processors: int | None
) -> None:
    nothing = tmp_path / "nothing"
    root = write(tmp_path / "root", **files)
    assert usable_memory(root) == (memory or usable_memory(nothing))
    assert usable_processors(root) == (processors or usable_processors(nothing))
