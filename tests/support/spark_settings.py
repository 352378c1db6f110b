"""Settings for every Spark that tests start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

# A JVM that lives for a minute spends more on the optimizing compiler than it gains from it.
# Derby would write its log into the working directory.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Dderby.stream.error.file=/dev/null"

_SITE = Path(__file__).with_name("spark_site")


def write_settings(folder: Path, settings: Mapping[str, str]) -> None:
    """Make a folder for `SPARK_CONF_DIR` with these default settings."""
    folder.mkdir()
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")


def python_path() -> str:
    """Return a `PYTHONPATH` with which the Python processes of Spark start faster, before the current one."""
    return os.pathsep.join(filter(None, [str(_SITE), os.environ.get("PYTHONPATH")]))
