"""Mappings: what fills which property, refused up front when it cannot be, the same for every form of input."""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import InvalidInput, NotFound, OmnigraphError
from omnigraph.sources.mapping.mapping_reader import LoadMapping, read_mapping
from omnigraph.sources.readers import open_source
from omnigraph.sources.rejects import Reject
from omnigraph.sources.tabular import read_table
from omnigraph.store.objects.object_store import ObjectStore
from tests.catalog.test_identity import catalog_of
from tests.support.places import fresh_memory

CATALOG = catalog_of("""
node Person {
  name: String @key
  age: I32?
  born: Date?
  city: String?
  kind: enum(staff, guest)?
  tags: [String]?
}
node Room { floor: I64  label: String  since: Date  area: F64?  @key(label, floor, since) }
node Note { text: String }
edge Sits: Person -> Room { share: F64? }
edge Has: Person -> Note
""")


def rows_of(source: Any, entry: Any, key: str = "Person", **options: Any) -> list[dict[str, Any]]:
    mapping = pickle.loads(pickle.dumps(read_mapping({key: entry}, CATALOG)))
    return [
        row
        for batch in open_source(source, CATALOG, mapping=mapping, **options)
        for row in batch.rows.to_pylist()
    ]


def told(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


# --- what fills what ----------------------------------------------------------------------------------------

PEOPLE = [
    {"full name": "Ann", "info": {"years": 30, "home": {"town": "Graz"}}, "junk": 1, "age": "x"},
    {"full name": "Bob", "info": {"years": None, "home": None}, "junk": 2, "age": "y"},
]
ENTRY = {
    "columns": {"age": "info.years", "city": "info.home.town"},
    "key": "full name",
    "constants": {"kind": "staff", "born": "2020-01-31", "tags": ["a"]},
    "ignore": ["junk", "age"],
}


def as_csv(path: Path) -> None:
    flat = [
        {name: json.dumps(value) if name == "info" else value for name, value in row.items()}
        for row in PEOPLE
    ]
    pv.write_csv(pa.Table.from_pylist(flat), path)


WRITERS: dict[str, Callable[[Path], object]] = {
    "p.csv": as_csv,
    "p.parquet": lambda path: pq.write_table(pa.Table.from_pylist(PEOPLE), path),
    "p.ndjson": lambda path: path.write_text("".join(json.dumps(row) + "\n" for row in PEOPLE)),
    "p.json": lambda path: path.write_text(json.dumps(PEOPLE)),
}


@pytest.mark.parametrize("name", [*WRITERS, "dicts", "arrow"])
def test_mapping_of_every_input_format_returns_the_same_rows(tmp_path: Path, name: str) -> None:
    source: Any = {"dicts": PEOPLE, "arrow": pa.Table.from_pylist(PEOPLE)}.get(name, tmp_path / name)
    if name in WRITERS:
        WRITERS[name](source)
    found = [told(row) for row in rows_of({"Person": source}, ENTRY)]
    same = {"kind": "staff", "born": date(2020, 1, 31), "tags": ["a"]}
    assert found == [
        {"id": "Ann", "name": "Ann", "age": 30, "city": "Graz", **same},
        {"id": "Bob", "name": "Bob", **same},
    ]


def test_mapping_without_entry_reads_the_column_of_the_property_name() -> None:
    table = pa.table({"called": ["Ann"], "age": [3], "home.town": ["Rome"]})
    (row,) = rows_of({"Person": table}, {"columns": {"name": "called", "city": "home.town"}})
    assert told(row) == {"id": "Ann", "name": "Ann", "age": 3, "city": "Rome"}


def test_mapping_null_values_apply_before_casts() -> None:
    table = pa.table({"name": ["a", "b", "c"], "age": ["NA", "", "7"], "city": ["-", "NA", "Bern"]})
    entry = {"null_values": ["NA", "", "-"], "casts": {"age": "I32"}}
    assert [(row["age"], row["city"]) for row in rows_of({"Person": table}, entry)] == [
        (None, None),
        (None, None),
        (7, "Bern"),
    ]


def test_mapping_key_sets_ids_of_keyless_nodes_and_edges() -> None:
    (note,) = rows_of(
        {"Note": pa.table({"n": [7], "text": ["x"]})}, {"key": "n", "casts": {"id": "String"}}, "Note"
    )
    assert note == {"id": "7", "text": "x"}
    table = pa.table({"e": ["k"], "p": ["Ann"], "n": [7]})
    entry = {"key": "e", "from": "p", "to": "n", "casts": {"to": "String"}}
    (edge,) = rows_of({"Has": table}, entry, "Has")
    assert edge == {"id": "k", "src": "Ann", "dst": "7"}
    (fixed,) = rows_of({"Has": pa.table({"p": ["Ann"]})}, {"from": "p", "constants": {"to": "n1"}}, "Has")
    assert (fixed["src"], fixed["dst"]) == ("Ann", "n1")


rooms = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1),
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4),
        st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(rooms=rooms, as_object=st.booleans())
def test_mapping_endpoint_of_several_columns_equals_the_node_id(
    rooms: list[tuple[int, str, date]], as_object: bool
) -> None:
    floors, labels, days = (list(items) for items in zip(*rooms, strict=True))
    nodes = pa.table({"floor": floors, "label": labels, "since": days})
    wanted = [
        one["id"] for batch in read_table("node:Room", nodes, CATALOG) for one in batch.rows.to_pylist()
    ]
    texts = [f"{day:%d.%m.%Y}" for day in days]
    edges = pa.table({"who": ["Ann"] * len(rooms), "f": floors, "l": labels, "s": texts})
    entry: dict[str, Any] = {"from": "who", "to": ["l", "f", "s"], "casts": {"to": [None, None, "%d.%m.%Y"]}}
    if as_object:
        entry["to"] = {"since": "s", "label": "l", "floor": "f"}
    for source in (edges, edges.to_pylist(), as_ndjson(edges)):
        found = rows_of({"Sits": source}, entry, "Sits", on_reject=None)
        assert [row["dst"] for row in found] == wanted


def as_ndjson(table: pa.Table) -> Any:
    """Rows as dicts that have been through JSON."""
    return [json.loads(json.dumps(row)) for row in table.to_pylist()]


def test_mapping_endpoint_of_one_column_is_the_id_itself() -> None:
    (row,) = rows_of(
        {"Sits": pa.table({"p": ["a"], "r": ['["x","1","2"]']})}, {"from": "p", "to": "r"}, "Sits"
    )
    assert row["dst"] == '["x","1","2"]'


def test_mapping_endpoint_without_value_is_rejected() -> None:
    table = pa.table(
        {"p": ["a", None, "c"], "f": [1, 2, None], "l": ["x", "y", "z"], "s": [date(2020, 1, 1)] * 3}
    )
    rejects: list[Reject] = []
    found = rows_of({"Sits": table}, {"from": "p", "to": ["l", "f", "s"]}, "Sits", on_reject=rejects.append)
    assert [row["src"] for row in found] == ["a"]
    assert [(item.place, item.message) for item in rejects] == [
        (2, "Sits row 2, column 'src': must not be null"),
        (3, "Sits row 3, column 'dst': must not be null"),
    ]


# --- bad rows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["people.csv", "people.ndjson", "people.parquet"])
def test_mapping_cast_failure_is_rejected_with_place_and_record(tmp_path: Path, name: str) -> None:
    rows = [
        {"who": f"p{number}", "day": day} for number, day in enumerate(["01.02.2020", "soon", "30.02.2020"])
    ]
    path = tmp_path / name
    table = pa.Table.from_pylist(rows)
    if name.endswith("parquet"):
        pq.write_table(table, path)
    elif name.endswith("csv"):
        pv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    unit = "line" if name.endswith("ndjson") else "row"
    entry = {"columns": {"name": "who", "born": "day"}, "casts": {"born": "%d.%m.%Y"}}
    rejects: list[Reject] = []
    found = rows_of({"Person": path}, entry, on_reject=rejects.append)
    assert [told(row) for row in found] == [{"id": "p0", "name": "p0", "born": date(2020, 2, 1)}]
    assert [(item.place, item.message, item.source) for item in rejects] == [
        (2, f"Person {unit} 2, column 'day': expected Date, got \"soon\"", str(path)),
        (3, f"Person {unit} 3, column 'day': expected Date, got \"30.02.2020\"", str(path)),
    ]
    record = rejects[0].record
    assert (json.loads(record) if isinstance(record, str) else record) == rows[1]
    with pytest.raises(InvalidInput, match=f"Person {unit} 2, column 'day'"):
        rows_of({"Person": path}, entry)


def test_mapping_path_into_non_object_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "p.ndjson"
    path.write_text('{"name":"a","x":{"y":1}}\n{"name":"b","x":5}\n{"name":"c","x":{}}\n{"name":"d"}\n')
    rejects: list[Reject] = []
    found = rows_of({"Person": path}, {"columns": {"age": "x.y"}}, on_reject=rejects.append)
    assert [(row["name"], row["age"]) for row in found] == [("a", 1), ("c", None), ("d", None)]
    assert [item.message for item in rejects] == ["Person line 2, column 'x.y': expected an object, got 5"]
    for values, message in [
        (pa.array([{"z": 1}]), "column 'x' has no field 'y' for 'x.y'"),
        (pa.array([1]), "column 'x' of type int64 has no members for 'x.y'"),
    ]:
        with pytest.raises(InvalidInput) as caught:
            rows_of({"Person": pa.table({"name": ["a"], "x": values})}, {"columns": {"age": "x.y"}})
        assert caught.value.message == message


@pytest.mark.parametrize("name", ["p.csv", "p.ndjson", "p.parquet"])
def test_mapping_with_unknown_columns_is_refused_unless_ignored(tmp_path: Path, name: str) -> None:
    rows = [{"who": "a", "extra": 1, "more": 2}]
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif name.endswith("csv"):
        pv.write_csv(pa.Table.from_pylist(rows), path)
    else:
        path.write_text(json.dumps(rows[0]))
    for ignore, message in [([], "unknown columns 'extra', 'more'"), (["more"], "unknown column 'extra'")]:
        with pytest.raises(InvalidInput, match=f"{message} for 'node:Person'"):
            rows_of({"Person": path}, {"key": "who", "ignore": ignore})
    for ignores in (["more", "extra"], True):
        assert [row["id"] for row in rows_of({"Person": path}, {"key": "who", "ignore": ignores})] == ["a"]


def test_mapping_of_missing_column_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        rows_of({"Person": pa.table({"fullname": ["a"]})}, {"key": "full_name"})
    assert caught.value.message == "unknown column 'fullname' for 'node:Person'"
    assert caught.value.hint == "did you mean `full_name`?"
    with pytest.raises(InvalidInput) as missing:
        rows_of({"Person": pa.table({"fullname": ["a"]})}, {"key": "full_name", "ignore": True})
    assert missing.value.message == "missing column 'full_name', which the mapping of 'node:Person' reads"
    assert missing.value.hint == "did you mean `fullname`?"
    with pytest.raises(InvalidInput, match="missing column 'name', which 'node:Person' requires"):
        rows_of({"Person": pa.table({"age": [1]})}, {})


# --- refused up front ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mapping", "message", "hint"),
    [
        ({"Persn": {}}, "mapping: Persn: unknown type 'Persn'; did you mean `Person`?", None),
        ({"Person": {"colums": {}}}, "unknown field 'colums' of a mapping", "did you mean `columns`?"),
        (
            {"Person": {"columns": {"nam": "x"}}},
            "unknown property 'nam' of type 'Person'",
            "did you mean `name`?",
        ),
        ({"Person": {"columns": {"name": 5}}}, "expected text, got 5", "put it in quotes"),
        ({"Person": {"columns": ["name"]}}, "expected a mapping, got list", None),
        ({"Person": 7}, "mapping: Person: expected a mapping, got 7", None),
        ({"Person": {"format": "cvs"}}, "unknown format 'cvs'", "did you mean `csv`?"),
        ({"Person": {"casts": {"age": "I64"}}}, "cast to I64, but property 'age' has type I32", None),
        (
            {"Person": {"casts": {"born": "epoch_sec"}}},
            "unknown cast 'epoch_sec'",
            "did you mean `epoch_seconds`?",
        ),
        ({"Person": {"casts": {"from": "String"}}}, "unknown property 'from' of type 'Person'", None),
        ({"Person": {"constants": {"age": "old"}}}, "property 'age': expected I32, got \"old\"", None),
        ({"Person": {"constants": {"age": None}}}, "property 'age': expected I32, got null", None),
        (
            {"Person": {"constants": {"kind": "boss"}}},
            "property 'kind': expected enum(guest, staff), got \"boss\"",
            None,
        ),
        ({"Person": {"key": "n", "constants": {"name": "x"}}}, "'name' is also mapped to a column", None),
        ({"Person": {"key": "n", "columns": {"name": "x"}}}, "'name' is also mapped by `columns`", None),
        ({"Person": {"constants": {"age": 1}, "casts": {"age": "I32"}}}, "'age' is a constant", None),
        ({"Person": {"key": ["a", "b"]}}, "expected 1 column for the key (name), got 2", None),
        ({"Person": {"from": "x"}}, "'node:Person' has no endpoints", None),
        (
            {"Person": {"ignore": ["name"]}},
            "cannot ignore 'name': 'node:Person' requires it and nothing else maps it",
            None,
        ),
        ({"Person": {"null_values": [None]}}, "expected text, got nothing", "put it in quotes"),
        ({"Sits": {"to": ["a", "b"]}}, "expected 3 columns for the key (label, floor, since), got 2", None),
        ({"Sits": {"to": {"labl": "a"}}}, "'labl' is not in the key", "did you mean `label`?"),
        ({"Sits": {"casts": {"to": "I64"}}}, "a cast of `to` requires columns under `to`", None),
        (
            {"Sits": {"to": ["a", "b", "c"], "casts": {"to": "I64"}}},
            "a composite key requires a list of casts",
            None,
        ),
        ({"Sits": {"to": ["a", "b", "c"], "casts": {"to": [None]}}}, "expected 3 casts, got 1", None),
        ({"Sits": {}, "sits": {}}, "mapping: sits: duplicate mapping of 'edge:Sits'", None),
    ],
)
def test_read_mapping_of_invalid_mapping_is_refused(mapping: Any, message: str, hint: str | None) -> None:
    with pytest.raises(OmnigraphError) as caught:
        read_mapping(mapping, CATALOG)
    assert isinstance(caught.value, InvalidInput | NotFound)
    assert caught.value.message.endswith(message)
    assert caught.value.message.startswith("mapping: ")
    if hint is not None:
        assert caught.value.hint == hint


def refusal(path: Path, text: str) -> OmnigraphError:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(OmnigraphError) as caught:
        read_mapping(path, CATALOG)
    return caught.value


def test_read_mapping_of_invalid_file_reports_the_line(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    found = refusal(path, "# people\nPerson:\n  columns:\n    name: x\n    nam: y\n")
    assert found.message == f"{path}: line 5: Person.columns.nam: unknown property 'nam' of type 'Person'"
    assert found.details == {"source": str(path), "line": 5, "path": "Person.columns.nam"}
    assert refusal(path, "Person:\n  columns: {name: x,\n    nam: y}\n").message.startswith(
        f"{path}: line 3:"
    )
    assert (
        refusal(path, "Person:\n  key: a\n  key: b\n").message
        == f"{path}: line 3: Person.key: duplicate key, also on line 2"
    )
    assert (
        refusal(path, "Person:\n  key: [a, {b: 1,\n    b: 2}]\n").message
        == f"{path}: line 3: Person.key.1.b: duplicate key, also on line 2"
    )
    assert refusal(path, "Person: [\n").message.startswith(f"{path}: line 2: ")
    assert refusal(path, "\n\nPersn: {}\n").message == (
        f"{path}: line 3: Persn: unknown type 'Persn'; did you mean `Person`?"
    )
    assert refusal(path, "- Person\n").message == f"{path}: expected a mapping, got list"
    as_json = tmp_path / "m.json"
    found = refusal(as_json, '{\n\t"Person": {\n\t\t"casts": {"age": "%d"}\n\t}\n}')
    assert (
        found.message
        == f"{as_json}: line 3: Person.casts.age: cast '%d' cannot produce I32 for property 'age'"
    )
    assert refusal(as_json, '{"Person": {}').message.startswith(str(as_json))
    path.write_bytes(b"\xff")
    with pytest.raises(InvalidInput, match="is not valid UTF-8"):
        read_mapping(path, CATALOG)
    with pytest.raises(NotFound, match="not found"):
        read_mapping(tmp_path / "none.yaml", CATALOG)


# --- what is loaded -----------------------------------------------------------------------------------------


def ids(mapping: LoadMapping | None, source: Any = None, **options: Any) -> list[str]:
    return [
        row["id"]
        for batch in open_source(source, CATALOG, mapping=mapping, **options)
        for row in batch.rows.to_pylist()
    ]


def test_mapping_file_sources_are_relative_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "drop"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "p.csv").write_text("who\nAnn\n")
    (folder / "rooms").write_text('{"label": "x", "floor": 1, "since": "1970-01-02"}\n')
    (folder / "m.yml").write_text(
        f"Person: {{source: in/*.csv, key: who}}\nRoom: {{source: {folder}/rooms, format: json}}\n"
    )
    monkeypatch.chdir(tmp_path)
    for path in (folder / "m.yml", "drop/m.yml", (folder / "m.yml").as_uri()):
        mapping = read_mapping(path, CATALOG)
        assert ids(mapping) == ["Ann", '["1","x","1"]']
        assert mapping.name == str(path)


def test_mapping_in_object_store_reads_sources_beside_it() -> None:
    uri = fresh_memory()
    store = ObjectStore.open(uri, {})
    store.put("a/m.json", json.dumps({"Person": {"source": "p.csv", "key": "who"}}).encode())
    store.put("a/p.csv", b"who\nAnn\n")
    assert ids(read_mapping(f"{uri}/a/m.json", CATALOG)) == ["Ann"]


def test_given_source_overrides_the_source_of_the_mapping(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("who\nAnn\n")
    one = read_mapping({"Person": {"key": "who"}}, CATALOG)
    assert ids(one, path) == ids(one, {"Person": path}) == ["Ann"]
    assert ids(
        one, {"Person": pa.table({"who": ["Bob"]}), "Note": pa.table({"id": ["n"], "text": ["x"]})}
    ) == [
        "Bob",
        "n",
    ]
    with pytest.raises(InvalidInput, match="the mapping has no source for node:Person"):
        open_source(None, CATALOG, mapping=one)
    two = read_mapping({"Person": {"source": str(path)}, "Note": {}}, CATALOG)
    with pytest.raises(InvalidInput, match="the mapping has no source for node:Note"):
        open_source(None, CATALOG, mapping=two)
    with pytest.raises(InvalidInput, match="requires a source per type"):
        open_source(path, CATALOG, mapping=two)
    with pytest.raises(InvalidInput, match="the mapping has no source for any type"):
        open_source(None, CATALOG, mapping=read_mapping({}, CATALOG))
    with pytest.raises(InvalidInput, match="a mapping of node:Person, node:Note and no rows to load"):
        open_source({}, CATALOG, mapping=two)
    with pytest.raises(InvalidInput, match="cannot load from NoneType"):
        open_source(None, CATALOG)
    with pytest.raises(InvalidInput, match="cannot load 'node:Person' from BytesIO"):
        open_source(io.BytesIO(b""), CATALOG, mapping=one)


# --- the guide ----------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]


def test_mapping_of_the_guide_is_valid_for_the_example_schema(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guide" / "loading.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    path = tmp_path / "mapping.yaml"
    path.write_text(text, encoding="utf-8")
    catalog = catalog_of((ROOT / "examples" / "team" / "schema.pg").read_text(encoding="utf-8"))
    found = read_mapping(path, catalog)
    assert list(found.types) == ["node:Person", "edge:Knows", "edge:WorksAt"]
    path.write_text("# what is\nPerson:\n  columns:\n    abuot: x\n", encoding="utf-8")
    with pytest.raises(InvalidInput) as caught:
        read_mapping(path, catalog)
    assert f"\n{str(caught.value).removeprefix(f'{tmp_path}/')}\n" in page
