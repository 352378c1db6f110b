"""How handles and commits print, and how errors name the rows of a DataFrame."""

from __future__ import annotations

from uuid import uuid4

import pandas as pd
import pytest

import omnigraph as og
from omnigraph.errors import ConstraintViolation, InvalidInput

SCHEMA = "node Person { name: String @key  age: I32? }\n"


@pytest.fixture
def graph() -> og.Graph:
    return og.init(f"memory://{uuid4().hex}", SCHEMA, actor="ann")


def test_parts_of_a_graph_print_their_content(graph: og.Graph) -> None:
    graph.branches.create("dev")
    graph.tags.create("v1")
    assert (repr(graph.branches), repr(graph.tags)) == ("Branches(dev, main)", "Tags(v1)")
    assert repr(graph.schema) == SCHEMA
    commits = graph.commits()
    assert repr(commits).splitlines()[-1] == "1 commit"
    assert "ann" in repr(commits)
    assert "<table" in getattr(commits, "_repr_html_")()  # noqa: B009 - what a notebook calls
    assert commits == [graph.commit("HEAD")]


def test_error_about_a_row_of_a_data_frame_names_its_index_label(graph: og.Graph) -> None:
    wrong = pd.DataFrame({"name": ["x", "y"], "age": [1, "z"]}, index=["a", "b"])
    with pytest.raises(InvalidInput) as caught:
        graph.load({"Person": wrong})
    assert caught.value.hint == "row 2 has the index 'b'"
    twice = pd.DataFrame({"name": ["x", "x"]}, index=[10, 77])
    with pytest.raises(ConstraintViolation) as refused:
        graph.load({"Person": twice})
    assert refused.value.violations[0]["index"] == 77
    assert refused.value.hint == "line 2 has the index 77"
    with pytest.raises(InvalidInput) as plain:
        graph.load({"Person": wrong.reset_index(drop=True)})
    assert plain.value.hint is None
