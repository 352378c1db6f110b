"""Sum of the Prometheus metrics of several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

# Gauges that are not sums. A writer serves only some of the graphs, and a limit is the same in each process.
_OTHERS: Final[Mapping[str, Callable[[float, float], float]]] = {
    "omnigraph_graphs": max,
    "process_max_fds": max,
    "process_start_time_seconds": min,
}


def sum_metrics(texts: Iterable[str]) -> str:
    r"""Return the metrics of all processes as one text in the Prometheus format.

    >>> one = '# TYPE done_total counter\ndone_total{route="/a"} 1.0\n'
    >>> two = '# TYPE done_total counter\ndone_total{route="/a"} 2.0\ndone_total{route="/b"} 5.0\n'
    >>> print(sum_metrics([one, two]), end="")
    # TYPE done_total counter
    done_total{route="/a"} 3.0
    done_total{route="/b"} 5.0
    """
    families: dict[str, tuple[list[str], dict[str, float]]] = {}
    for text in texts:
        samples: dict[str, float] = {}
        comments: list[str] = []
        for line in text.splitlines():
            if line.startswith("#"):
                _, _, rest = line.partition(" ")
                name = rest.split(" ")[1]
                comments, samples = families.setdefault(name, ([], {}))
                if line not in comments:
                    comments.append(line)
                continue
            series, _, value = line.rpartition(" ")
            number = float(value)
            before = samples.get(series)
            combine = _OTHERS.get(series.partition("{")[0], _add)
            samples[series] = number if before is None else combine(before, number)
    lines = []
    for comments, samples in families.values():
        lines += comments
        lines += [f"{series} {_render(value)}" for series, value in samples.items()]
    return "".join(f"{line}\n" for line in lines)


def select_counters(text: str) -> str:
    r"""Return the counters and histograms of a text, without the gauges.

    >>> print(select_counters("# TYPE a_total counter\na_total 1.0\n# TYPE b gauge\nb 2.0\n"), end="")
    # TYPE a_total counter
    a_total 1.0
    """
    kinds = dict(line.split(" ")[2:4] for line in text.splitlines() if line.startswith("# TYPE "))
    lines: list[str] = []
    is_selected = False
    for line in text.splitlines(keepends=True):
        if line.startswith("#"):
            is_selected = kinds.get(line.split(" ")[2]) in ("counter", "histogram")
        if is_selected:
            lines.append(line)
    return "".join(lines)


def _add(one: float, other: float) -> float:
    return one + other


def _render(value: float) -> str:
    return repr(float(value)).replace("inf", "+Inf").replace("-+Inf", "-Inf").replace("nan", "NaN")
