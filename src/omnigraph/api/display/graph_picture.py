"""Pictures of graphs and schemas as SVG, for notebooks. They load nothing from elsewhere."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.api.display.layout import place_nodes
from omnigraph.api.display.text_table import cell

if TYPE_CHECKING:
    from omnigraph.api.results.result_graph import NodeKey, ResultGraph
    from omnigraph.lang.schema import Schema

_MAX_NODES = 300
# Edges have their type as text if there are at most this many.
_MAX_EDGE_LABELS = 40
_MAX_LABEL = 22
_WIDTH, _MARGIN, _LEGEND = 860, 60, 28
# The colours of Okabe and Ito, which people with colour blindness can tell apart.
_COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b3a100", "#777777")
# Properties that name a node, best first.
_NAMES = ("name", "title", "label", "slug", "code")


@dataclass(frozen=True, slots=True)
class _Dot:
    label: str
    tooltip: str
    group: str


@dataclass(frozen=True, slots=True)
class _Line:
    source: int
    target: int
    label: str
    tooltip: str


def draw_graph(graph: ResultGraph) -> str:
    """Return a picture of nodes and edges, with the types as colours and the properties as tooltips."""
    degrees = graph.degrees()
    shown = sorted(graph.nodes, key=lambda key: -degrees[key])[:_MAX_NODES]
    places = {key: place for place, key in enumerate(shown)}
    dots = [_Dot(_name(key, graph.nodes[key]), _tooltip(key, graph.nodes[key]), key[0]) for key in shown]
    lines = [
        _Line(
            places[edge.source],
            places[edge.target],
            edge.type_name,
            _tooltip((edge.type_name, edge.id), edge.properties),
        )
        for edge in graph.edges
        if edge.source in places and edge.target in places
    ]
    note = f"{len(shown)} of {len(graph.nodes):,} nodes" if len(shown) < len(graph.nodes) else ""
    return _draw(dots, lines, _counts(dots), note)


def draw_schema(schema: Schema) -> str:
    """Return a picture of the node types of a schema and the edge types between them."""
    places = {item.name: place for place, item in enumerate(schema.nodes)}
    dots = [
        _Dot(item.name, "\n".join([item.name, *(f"{p.name}: {p.type}" for p in item.properties)]), item.name)
        for item in schema.nodes
    ]
    lines = [
        _Line(
            places[item.source],
            places[item.target],
            item.name,
            "\n".join(
                [
                    f"{item.name}: {item.source} -> {item.target}",
                    *(f"{p.name}: {p.type}" for p in item.properties),
                ]
            ),
        )
        for item in schema.edges
    ]
    return _draw(dots, lines, {}, "")


def _draw(dots: Sequence[_Dot], lines: Sequence[_Line], legend: Mapping[str, str], note: str) -> str:
    height = min(620, 220 + 12 * len(dots)) if dots else 80
    at = place_nodes(len(dots), [(line.source, line.target) for line in lines])
    points = [
        (_MARGIN + x * (_WIDTH - 2 * _MARGIN), _MARGIN + y * (height - 2 * _MARGIN - _LEGEND)) for x, y in at
    ]
    groups = sorted({dot.group for dot in dots})
    colors = {group: _COLORS[place % len(_COLORS)] for place, group in enumerate(groups)}
    body = [
        *_line_marks(lines, points, labelled=len(lines) <= _MAX_EDGE_LABELS),
        *(_dot_mark(dot, point, colors[dot.group]) for dot, point in zip(dots, points, strict=True)),
        *_legend_marks(legend, colors, note, height),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{len(dots)} nodes, {len(lines)} edges" style="width:100%;max-width:{_WIDTH}px;height:auto" '
        'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">'
        '<defs><marker id="og-arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="#999"/></marker></defs>'
        f"{''.join(body)}</svg>"
    )


_RADIUS = 11


def _line_marks(
    lines: Sequence[_Line], points: Sequence[tuple[float, float]], *, labelled: bool
) -> Iterator[str]:
    """Yield the edges. Parallel edges are bent apart, and an edge to its own node is a loop."""
    seen: Counter[tuple[int, int]] = Counter()
    for line in lines:
        (ax, ay), (bx, by) = points[line.source], points[line.target]
        pair = (min(line.source, line.target), max(line.source, line.target))
        seen[pair] += 1
        if line.source == line.target:
            size = 24 + 10 * seen[pair]
            path = (
                f"M{ax - 6:.1f} {ay - 9:.1f}C{ax - size:.1f} {ay - size:.1f} {ax + size:.1f} {ay - size:.1f} "
            )
            path += f"{ax + 6:.1f} {ay - 9:.1f}"
            middle = (ax, ay - 0.75 * size - 4)
        else:
            dx, dy = bx - ax, by - ay
            length = max((dx * dx + dy * dy) ** 0.5, 1e-6)
            bend = 18.0 * (seen[pair] // 2) * (1 if seen[pair] % 2 else -1)
            bend = bend if line.source == pair[0] else -bend
            mx, my = (ax + bx) / 2 - dy / length * bend, (ay + by) / 2 + dx / length * bend
            gap = (_RADIUS + 3) / length
            start = f"{ax + dx * gap:.1f} {ay + dy * gap:.1f}"
            path = f"M{start}Q{mx:.1f} {my:.1f} {bx - dx * gap:.1f} {by - dy * gap:.1f}"
            middle = ((ax + bx) / 4 + mx / 2, (ay + by) / 4 + my / 2 - 4)
        yield (
            f'<path d="{path}" fill="none" stroke="#999" stroke-width="1.2" marker-end="url(#og-arrow)">'
            f"<title>{html.escape(line.tooltip)}</title></path>"
        )
        if labelled:
            yield (
                f'<text x="{middle[0]:.1f}" y="{middle[1]:.1f}" text-anchor="middle" font-size="10" '
                f'opacity="0.75">{html.escape(_cut(line.label))}</text>'
            )


def _dot_mark(dot: _Dot, point: tuple[float, float], color: str) -> str:
    x, y = point
    return (
        f'<g><title>{html.escape(dot.tooltip)}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}" '
        f'fill="{color}" stroke="#fff" stroke-width="1.5"/><text x="{x:.1f}" y="{y + 25:.1f}" '
        f'text-anchor="middle">{html.escape(_cut(dot.label))}</text></g>'
    )


def _legend_marks(
    legend: Mapping[str, str], colors: Mapping[str, str], note: str, height: int
) -> Iterator[str]:
    x, y = 16.0, height - 12
    for group, text in legend.items():
        yield f'<circle cx="{x:.0f}" cy="{y - 4}" r="5" fill="{colors[group]}"/>'
        yield f'<text x="{x + 9:.0f}" y="{y}">{html.escape(text)}</text>'
        x += 24 + 7.2 * len(text)
    if note:
        yield f'<text x="{_WIDTH - 12}" y="{y}" text-anchor="end" opacity="0.75">{html.escape(note)}</text>'


def _counts(dots: Sequence[_Dot]) -> dict[str, str]:
    counts = Counter(dot.group for dot in dots)
    return {group: f"{group} ({counts[group]})" for group in sorted(counts)}


def _name(key: NodeKey, properties: Mapping[str, Any]) -> str:
    found = (properties[name] for name in _NAMES if isinstance(properties.get(name), str))
    return next(found, key[1])


def _tooltip(key: tuple[str, str], properties: Mapping[str, Any]) -> str:
    rows = (f"{name}: {_cut(cell(value), 200)}" for name, value in properties.items() if value is not None)
    return "\n".join([f"{key[0]} {key[1]}", *rows])


def _cut(text: str, longest: int = _MAX_LABEL) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
