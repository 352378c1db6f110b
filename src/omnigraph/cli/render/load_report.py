"""Render the report of a load as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def report_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table of the loaded rows by type, the totals, and the seconds of each stage.

    >>> rows = {"nodes": {"City": 2}, "edges": {}, "total": 2}
    >>> counts = {"City": {"inserted": 2, "updated": 0, "deleted": 0}}
    >>> figures = {"rows": rows, "affected": counts, "rejected": 1, "superseded": 0, "bytes": 2048}
    >>> for line in report_lines({**figures, "seconds": {"read": 0.5, "total": 0.5}}):
    ...     print(line)
    type      loaded   inserted    updated    deleted
    City           2          2          0          0
    total          2 rows, 1 rejected, 2.0 KB
    time   read 0.50 s, total 0.50 s
    """
    loaded = {**report["rows"]["nodes"], **report["rows"]["edges"]}
    width = max(map(len, [*loaded, "total"]))
    stages = ("inserted", "updated", "deleted")
    yield f"{'type':<{width}}  {'loaded':>9}" + "".join(f"  {stage:>9}" for stage in stages)
    for name, count in loaded.items():
        counts = report["affected"].get(name, {})
        yield f"{name:<{width}}  {count:>9,}" + "".join(f"  {counts.get(stage, 0):>9,}" for stage in stages)
    rows = report["rows"]["total"]
    facts = [f"{rows:>9,} {'row' if rows == 1 else 'rows'}", f"{report['rejected']:,} rejected"]
    if report["superseded"]:
        facts.append(f"{report['superseded']:,} superseded")
    facts += [f"{report[kind]:,} {kind}" for kind in ("nulled", "dropped") if report.get(kind)]
    if report["bytes"] is not None:
        facts.append(_size(report["bytes"]))
    yield f"{'total':<{width}}  " + ", ".join(facts)
    yield f"{'time':<{width}}  " + ", ".join(
        f"{stage} {value:.2f} s" for stage, value in report["seconds"].items()
    )


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} byte{'' if count == 1 else 's'}"
    size = count / 1024
    for unit in ("KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"
