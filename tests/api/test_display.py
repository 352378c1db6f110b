"""Pictures of graphs and schemas, and what notebooks show."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import omnigraph as og
from omnigraph.api.display.layout import place_nodes
from tests.support.places import fresh_memory

SCHEMA = """\
node City { name: String @key  note: String? }
node Country { code: String @key }
edge Road: City -> City { km: I32? }
edge LiesIn: City -> Country
"""
ALL = """\
query all() {
  match { $a: City  optional { $a $r:road $b }  optional { $a $l:liesIn $c } }
  return { $a.* as a, $r.* as r, $l.* as l }
}
"""


@pytest.fixture(scope="module")
def graph() -> og.Graph:
    graph = og.init(fresh_memory(), schema=SCHEMA)
    graph.load(
        {
            "City": [{"name": "Bern", "note": "<b>&"}, {"name": "Chur"}, {"name": "Rome"}],
            "Country": [{"code": "CH"}],
            "Road": [
                {"from": "Bern", "to": "Chur", "km": 243},
                {"from": "Bern", "to": "Chur"},
                {"from": "Rome", "to": "Rome"},
            ],
            "LiesIn": [{"from": "Bern", "to": "CH"}],
        }
    )
    return graph


def marks(svg: str, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter(f"{{http://www.w3.org/2000/svg}}{tag}"))


def test_result_graph_has_each_node_and_edge_once(graph: og.Graph) -> None:
    found = graph.query(ALL).to_graph()
    assert sorted(found.nodes) == [("City", "Bern"), ("City", "Chur"), ("City", "Rome"), ("Country", "CH")]
    # The query does not return countries, so this one is known as an end of an edge only.
    assert found.nodes["Country", "CH"] == {}
    assert found.nodes["City", "Bern"] == {"name": "Bern", "note": "<b>&"}
    assert sorted((edge.type_name, edge.source[1], edge.target[1]) for edge in found.edges) == [
        ("LiesIn", "Bern", "CH"),
        ("Road", "Bern", "Chur"),
        ("Road", "Bern", "Chur"),
        ("Road", "Rome", "Rome"),
    ]


def test_result_as_networkx_graph_keeps_parallel_edges_and_properties(graph: og.Graph) -> None:
    found = graph.query(ALL).to_networkx()
    assert (found.number_of_nodes(), found.number_of_edges()) == (4, 4)
    roads = found.get_edge_data(("City", "Bern"), ("City", "Chur"))
    assert sorted(road["km"] or 0 for road in roads.values()) == [0, 243]
    assert found.nodes["City", "Bern"]["properties"] == {"name": "Bern", "note": "<b>&"}


def test_result_without_entities_has_no_graph(graph: og.Graph) -> None:
    with pytest.raises(ValueError, match=r"return them with `\$v.\* as v`"):
        graph.query("query names() { match { $c: City } return { $c.name } }").to_graph()


def test_graph_picture_shows_nodes_edges_and_escaped_tooltips(graph: og.Graph, tmp_path: Path) -> None:
    found = graph.query(ALL).to_graph()
    found.save(tmp_path / "g.svg")
    svg = (tmp_path / "g.svg").read_text(encoding="utf-8")
    assert svg == found._repr_html_() == graph.query(ALL).to_graph().to_svg()
    titles = [item.text for item in marks(svg, "title")]
    assert "City Bern\nname: Bern\nnote: <b>&" in titles
    assert len([text for text in titles if text and text.startswith("Road")]) == 3
    # Four nodes, and two types in the legend.
    assert len(marks(svg, "circle")) == 6


def test_graph_picture_of_a_large_graph_shows_its_best_connected_nodes() -> None:
    graph = og.init(fresh_memory(), schema=SCHEMA)
    names = [f"c{number}" for number in range(400)]
    roads = [{"from": "c7", "to": name} for name in names[:50]]
    graph.load({"City": [{"name": name} for name in names], "Road": roads})
    text = "query all() { match { $c: City  optional { $c $r:road $d } } return { $c.* as c, $r.* as r } }"
    svg = graph.query(text).to_graph().to_svg()
    assert "300 of 400 nodes" in svg
    assert len(marks(svg, "circle")) == 301
    assert ">c7</text>" in svg


def test_schema_picture_shows_types_and_edges(graph: og.Graph) -> None:
    texts = {item.text for item in marks(graph.schema._repr_html_(), "text")}
    assert texts == {"City", "Country", "Road", "LiesIn"}
    titles = [item.text for item in marks(graph.schema._repr_html_(), "title")]
    assert "City\nname: String\nnote: String?" in titles


def test_graph_and_branches_show_tables_in_notebooks(graph: og.Graph) -> None:
    shown = graph._repr_html_()
    assert '<td>City</td><td>node</td><td style="text-align:right">3</td>' in shown
    assert graph.snapshot().commit_id in shown
    assert "<td>main</td>" in graph.branches._repr_html_()
    assert repr(graph.snapshot()).endswith("rows={City: 3, Country: 1, LiesIn: 1, Road: 3})")


@pytest.mark.parametrize("count", [0, 1, 2, 3, 40])
def test_layout_is_repeatable_and_apart(count: int) -> None:
    edges = [(place, (place + 1) % count) for place in range(count)]
    at = place_nodes(count, edges)
    assert np.array_equal(at, place_nodes(count, edges))
    assert at.shape == (count, 2)
    assert ((at >= 0) & (at <= 1)).all()
    assert len({tuple(point) for point in at.round(3).tolist()}) == count
