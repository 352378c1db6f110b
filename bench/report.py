"""The table of results: a line per shape and peer, with the ratio and whether the goal is met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from bench.measure import Timing

OURS = "omnigraph"


@dataclass(frozen=True, slots=True)
class Line:
    """One comparison. `goal_ratio` limits our time relative to the peer, `goal_ms` in milliseconds."""

    shape: str
    ours_ms: float | None
    peer: str
    peer_ms: float | None
    goal_ratio: float | None = None
    goal_ms: float | None = None
    # The ratio of the lower quartiles.
    quiet_ratio: float | None = None

    @property
    def ratio(self) -> float | None:
        """Our time divided by that of the peer, or None if either is unknown."""
        if self.ours_ms is None or not self.peer_ms:
            return None
        return self.ours_ms / self.peer_ms

    @property
    def ok(self) -> bool | None:
        """Whether the goal is met, or None without a goal or without times.

        >>> Line("x", 2.0, "peer", 4.0, goal_ratio=1.0).ok, Line("x", 2.0, "peer", 4.0).ok
        (True, None)
        """
        if self.goal_ms is not None:
            return None if self.ours_ms is None else self.ours_ms <= self.goal_ms
        if self.goal_ratio is None or self.ratio is None:
            return None
        return self.ratio <= self.goal_ratio

    def to_json(self) -> dict[str, Any]:
        """Return all fields and the derived values."""
        return {**asdict(self), "ratio": self.ratio, "ok": self.ok}


@dataclass(frozen=True)
class Result:
    """The times and the goals of a shape."""

    timing: Timing
    goals: Mapping[str, float | None]
    goal_ms: float | None = None

    @property
    def lines(self) -> list[Line]:
        """Return a comparison with each measured peer, or one without a peer if the goal is in milliseconds."""
        timing, ours = self.timing, self.timing.median(OURS)
        found = [
            Line(timing.shape, ours, peer, timing.median(peer), goal, self.goal_ms, self._quiet_ratio(peer))
            for peer, goal in self.goals.items()
            if peer in timing.samples
        ]
        return found or [Line(timing.shape, ours, "-", None, None, self.goal_ms)]

    def _quiet_ratio(self, peer: str) -> float | None:
        ours, theirs = self.timing.quartile(OURS), self.timing.quartile(peer)
        return ours / theirs if ours is not None and theirs else None

    @property
    def mismatches(self) -> list[str]:
        """Return the differences between results, with the name of the shape."""
        return [f"{self.timing.shape}: {text}" for text in self.timing.mismatches]


def render(lines: Sequence[Line], title: str) -> Table:
    """Return the table."""
    table = Table(title=title, title_justify="left")
    table.add_column("shape", no_wrap=True)
    for heading in ("ours ms", "peer", "peer ms", "ratio", "lower quartile", "goal"):
        table.add_column(heading, justify="left" if heading == "peer" else "right")
    table.add_column("ok", justify="center")
    for line in lines:
        table.add_row(
            line.shape,
            _number(line.ours_ms),
            line.peer,
            _number(line.peer_ms),
            _number(line.ratio, "x"),
            _number(line.quiet_ratio, "x"),
            _goal(line),
            {True: "[green]yes[/]", False: "[red]NO[/]", None: ""}[line.ok],
        )
    return table


def _number(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:,.2f}{unit}"


def _goal(line: Line) -> str:
    if line.goal_ms is not None:
        return f"{line.goal_ms:,.0f} ms"
    return "" if line.goal_ratio is None else f"{line.goal_ratio:.1f}x"
