"""`$p.*` in `return`: columns for all properties, and whole nodes and edges as values of a result."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.lang.types import ObjectType
from omnigraph.protocol.codec import read_result, write_result
from tests.support.places import fresh_memory

SCHEMA = """\
node Person { name: String @key  serial: I64?  born: Date?  picture: Blob? }
node Firm { slug: String @key }
edge WorksAt: Person -> Firm { since: Date? }
"""
ALL = """\
query all() {
  match { $p: Person  optional { $p $w:worksAt $f } }
  return { $p.* as person, $w.* as job, $f.* as firm }
  order { $p.name }
}
"""


@pytest.fixture(scope="module")
def graph() -> og.Graph:
    graph = og.init(fresh_memory(), schema=SCHEMA)
    graph.load(
        {
            "Person": [
                {"name": "Ana", "serial": 2**60 + 1, "born": "2000-01-01", "picture": b"x"},
                {"name": "Bo"},
            ],
            "Firm": [{"slug": "acme"}],
            "WorksAt": [{"from": "Ana", "to": "acme", "since": "2020-05-01"}],
        }
    )
    return graph


def test_query_of_entities_returns_the_objects_of_get(graph: og.Graph) -> None:
    ana, bo = graph.query(ALL).rows()
    job = ana["job"]
    stored = graph.get("Person", "Ana")
    assert stored is not None
    del stored["picture"]
    assert ana["person"] == stored == {"id": "Ana", "name": "Ana", "serial": 2**60 + 1, "born": "2000-01-01"}
    assert job == graph.get("WorksAt", job["id"])
    assert (job["from"], job["to"], ana["firm"]) == ("Ana", "acme", {"id": "acme", "slug": "acme"})
    assert (bo["person"]["id"], bo["job"], bo["firm"]) == ("Bo", None, None)


def test_entity_columns_are_typed_structs_in_arrow(graph: og.Graph) -> None:
    result = graph.query(ALL)
    assert result.table.schema.field("firm").type == pa.struct([("id", pa.string()), ("slug", pa.string())])
    assert result.table["person"][0].as_py()["born"] == date(2000, 1, 1)
    assert result.table["firm"].null_count == 1
    jobs = result.types[1]
    assert isinstance(jobs, ObjectType)
    assert (jobs.kind, jobs.type_name, jobs.endpoints) == ("edge", "WorksAt", ("Person", "Firm"))


def test_entity_column_of_empty_result_has_its_type(graph: og.Graph) -> None:
    none = graph.query('query none() { match { $f: Firm { slug: "x" } } return { $f.* as firm } }')
    assert none.rows() == []
    assert none.table.schema.field("firm").type == pa.struct([("id", pa.string()), ("slug", pa.string())])


def test_entity_column_in_pandas_keeps_large_integers(graph: og.Graph) -> None:
    people = graph.query(ALL).to_pandas()["person"]
    assert people[0]["serial"] == 2**60 + 1
    assert people[1]["serial"] is None


def test_result_with_entities_is_the_same_after_encoding(graph: og.Graph) -> None:
    result = graph.query(ALL)
    decoded = read_result(write_result(result))
    assert decoded == result
    assert decoded.rows() == result.rows()


def test_all_properties_leave_blobs_out(graph: og.Graph) -> None:
    result = graph.query('query ana() { match { $p: Person { name: "Ana" } } return { $p.* } }')
    assert result.columns == ["p.born", "p.name", "p.serial"]
