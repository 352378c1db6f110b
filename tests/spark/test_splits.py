"""However an input is cut, its splits together have every record once, in order, at its place."""

from __future__ import annotations

import gzip
import json
import pickle
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as pf
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import InvalidInput, NotFound
from omnigraph.sources import splits
from omnigraph.sources.mapping.mapping_reader import read_mapping
from omnigraph.sources.readers import open_source
from omnigraph.sources.rejects import Reject
from omnigraph.sources.splits import Split, SplitReader, can_split, input_bytes, plan_splits
from tests.catalog.test_identity import catalog_of
from tests.spark.loads import backwards_and_twice, begun, compared

CATALOG = catalog_of("""
node N { text: String }
node Person { name: String @key  age: I32? }
""")


def record(text: str) -> bytes:
    return json.dumps({"type": "N", "data": {"text": text}}).encode()


def texts(plan: Sequence[Split]) -> list[tuple[int, str]]:
    """The line and the text of every record, with lines that count over all splits of one file."""
    found: list[tuple[int, str]] = []
    before = 0
    for split in plan:
        reader = SplitReader(split, CATALOG, {})
        for batch in reader.read(None):
            places = batch.places.to_pylist()
            found += [
                (before + place, text)
                for place, text in zip(places, batch.rows["text"].to_pylist(), strict=True)
            ]
        before += reader.lines
    return found


# A text, what ends its line, and whether a line is blank instead.
lines = st.lists(
    st.tuples(
        st.one_of(
            st.none(), st.text("ab é\n\r\u2028", max_size=6), st.integers(1, 300).map(lambda n: "x" * n)
        ),
        st.sampled_from([b"\n", b"\r\n", b" \n"]),
    ),
    max_size=8,
)


@settings(max_examples=80, deadline=None)
@given(lines=lines, is_ended=st.booleans(), split_bytes=st.integers(1, 120))
def test_splits_of_a_file_have_every_line_once_in_order(
    lines: list[tuple[str | None, bytes]], is_ended: bool, split_bytes: int
) -> None:
    data = b"".join((b"" if text is None else record(text)) + end for text, end in lines)
    if not is_ended:
        data = data.removesuffix(b"\n")
    wanted = [(number, text) for number, (text, _) in enumerate(lines, 1) if text is not None]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.jsonl"
        path.write_bytes(data)
        plan = plan_splits(path, CATALOG, {}, split_bytes)
        assert [item.number for item in plan] == list(range(len(plan)))
        assert len(plan) == max(1, -(-len(data) // split_bytes))
        assert texts(plan) == wanted
        packed = Path(folder) / "in.jsonl.gz"
        packed.write_bytes(gzip.compress(data))
        assert texts(plan_splits(packed, CATALOG, {}, split_bytes)) == wanted


def test_split_line_longer_than_the_read_size_is_in_one_split(tmp_path: Path) -> None:
    long = "x" * (2 << 20)
    path = tmp_path / "in.jsonl"
    path.write_bytes(record("a") + b"\n" + record(long) + b"\n" + record("b"))
    for split_bytes in (1 << 18, 1 << 20, (2 << 20) + 7):
        assert texts(plan_splits(path, CATALOG, {}, split_bytes)) == [(1, "a"), (2, long), (3, "b")]


@pytest.mark.parametrize("split_bytes", [1, 2, 40, 1000])
def test_splits_ignore_a_byte_order_mark_only_at_the_file_start(tmp_path: Path, split_bytes: int) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes(b"\xef\xbb\xbf" + record("a") + b"\n" + record("b"))
    assert texts(plan_splits(path, CATALOG, {}, split_bytes)) == [(1, "a"), (2, "b")]
    path.write_bytes(record("a") + b"\n\xef\xbb\xbf" + record("b"))
    with pytest.raises(InvalidInput, match="invalid strict JSON"):
        texts(plan_splits(path, CATALOG, {}, split_bytes))


def test_splits_read_in_any_order_or_again_return_the_same_lines(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n".join(record(f"{number}") for number in range(20)))
    plan = plan_splits(path, CATALOG, {}, 100)
    assert len(plan) > 5
    alone = {item.number: texts([item]) for item in reversed(plan)}
    assert alone == {item.number: texts([item]) for item in plan}
    assert [text for number in sorted(alone) for _, text in alone[number]] == [f"{n}" for n in range(20)]


def test_splits_of_a_folder_follow_the_order_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_bytes(record("b"))
    (tmp_path / "a.jsonl").write_bytes(record("a1") + b"\n" + record("a2"))
    (tmp_path / "c[1].jsonl.gz").write_bytes(gzip.compress(record("c")))
    (tmp_path / "notes.txt").write_bytes(b"not a record")
    plan = plan_splits(tmp_path, CATALOG, {}, len(record("a1")) + 1)
    assert [item.number for item in plan] == [0, 1, 2, 3]
    assert [Path(item.file).name for item in plan] == ["a.jsonl", "a.jsonl", "b.jsonl", "c[1].jsonl.gz"]
    assert [text for item in plan for _, text in texts([item])] == ["a1", "a2", "b", "c"]


@settings(max_examples=40, deadline=None)
@given(
    groups=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    split_rows=st.integers(1, 12),
)
def test_splits_of_parquet_read_each_row_group_once_in_order(groups: list[int], split_rows: int) -> None:
    total = sum(groups)
    rows = pa.table({"name": [f"p{number}" for number in range(total)]})
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "_SPLIT_ROWS", split_rows)
        path = Path(folder) / "people.parquet"
        with pq.ParquetWriter(path, rows.schema) as writer:
            start = 0
            for count in groups:
                writer.write_table(rows.slice(start, count))
                start += count
        plan = plan_splits({"Person": path}, CATALOG, {})
        found: list[tuple[int, Any]] = []
        for item in plan:
            assert item.first_row == len(found)
            for batch in SplitReader(item, CATALOG, {}).read(None):
                names = batch.rows["name"].to_pylist()
                places = batch.places.to_pylist()
                found += [(item.first_row + at, name) for at, name in zip(places, names, strict=True)]
    assert found == [(number + 1, f"p{number}") for number in range(total)]
    assert (plan[0].start, plan[-1].stop) == (0, len(groups))


def test_splits_of_quoted_csv_are_one_split(tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    path.write_bytes(b'text\n"a\nb"\n"c\n"\nd\n')
    (only,) = plan_splits({"N": path}, CATALOG, {}, 2)
    assert (only.form, only.key) == ("csv", "node:N")
    assert texts([only]) == [(1, "a\nb"), (2, "c\n"), (3, "d")]


def test_splits_of_source_without_type_or_format_are_refused(tmp_path: Path) -> None:
    csv, records = tmp_path / "n.csv", tmp_path / "n.txt"
    csv.write_bytes(b"text\nx\n")
    records.write_bytes(record("x"))
    with pytest.raises(InvalidInput, match=r"the type of the rows of .* is unknown"):
        plan_splits(csv, CATALOG, {})
    with pytest.raises(InvalidInput, match="unknown format"):
        plan_splits({"N": records}, CATALOG, {})
    with pytest.raises(NotFound, match="unknown type 'Nn'"):
        plan_splits({"Nn": csv}, CATALOG, {})
    with pytest.raises(NotFound, match="not found"):
        plan_splits(tmp_path / "m.jsonl", CATALOG, {})


def test_split_rejects_have_line_numbers_within_the_split(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n".join([record("a"), b"{", record("b"), b"[]"]))
    plan = plan_splits(path, CATALOG, {}, len(record("a")) + 1)
    found: list[list[int]] = []
    for item in plan:
        rejects: list[Reject] = []
        for _ in SplitReader(item, CATALOG, {}).read(rejects.append):
            pass
        found.append([reject.place for reject in rejects])
    assert found == [[], [1], [1]]


def test_can_split_accepts_only_files(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(record("a"))
    assert can_split(path)
    assert can_split({"N": str(path)})
    assert not any(map(can_split, ({}, [{"type": "N"}], {"N": pa.table({"text": ["a"]})})))
    assert input_bytes(str(tmp_path), CATALOG, {}) == len(record("a"))


# --- rows of one type ---------------------------------------------------------------------------------------

PEOPLE = "node:Person"


def read_all(plan: Sequence[Split]) -> tuple[list[tuple[str, int, Any]], list[tuple[str | None, int, str]]]:
    """Every row and every reject with the place that it has in its file."""
    rows: list[tuple[str, int, Any]] = []
    left: list[tuple[str | None, int, str]] = []
    before: dict[str, int] = {}
    for split in plan:
        reader = SplitReader(split, CATALOG, {})
        rejects: list[Reject] = []
        first = before.get(split.file, 0) if split.form == "records" else split.first_row
        for batch in reader.read(rejects.append):
            found = zip(batch.places.to_pylist(), batch.rows.to_pylist(), strict=True)
            rows += [(split.file, first + place, row) for place, row in found]
        left += [(item.source, first + item.place, item.message.partition(": ")[2]) for item in rejects]
        before[split.file] = first + reader.lines
    return rows, left


def read_at_once(source: Any) -> tuple[list[tuple[str, int, Any]], list[tuple[str | None, int, str]]]:
    rows: list[tuple[str, int, Any]] = []
    rejects: list[Reject] = []
    for batch in open_source(source, CATALOG, on_reject=rejects.append):
        found = zip(batch.places.to_pylist(), batch.rows.to_pylist(), strict=True)
        rows += [(str(batch.source), place, row) for place, row in found]
    return rows, [(item.source, item.place, item.message.partition(": ")[2]) for item in rejects]


cells = st.sampled_from(["a", "bb", "é", "1", "-1", "x y", "", "007", "99999999999"])
csv_rows = st.lists(
    st.tuples(st.lists(cells, min_size=1, max_size=3), st.sampled_from(["\n", "\r\n"])), max_size=12
)


@settings(max_examples=80, deadline=None)
@given(
    rows=csv_rows,
    odd=st.sampled_from(["", "", '"q",1\n', '"two\nlines",1\n', "\n", "\r", "lone\rreturn,1\n"]),
    at=st.integers(0, 12),
    is_ended=st.booleans(),
    split_bytes=st.integers(1, 60),
)
def test_splits_of_csv_begin_only_where_a_line_is_a_row(
    rows: list[tuple[list[str], str]], odd: str, at: int, is_ended: bool, split_bytes: int
) -> None:
    texts = [",".join(row) + end for row, end in rows]
    text = "".join([*texts[:at], odd, *texts[at:]])
    data = ("name,age\n" + (text if is_ended else text.rstrip("\r\n"))).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        path.write_bytes(data)
        plan = plan_splits({"Person": path}, CATALOG, {}, split_bytes)
        assert read_all(plan) == read_at_once({"Person": path})
        if b'"' in data or b"\n\n" in data:
            assert len(plan) == 1
        assert all(item.stop is None or data[item.stop - 1 : item.stop] == b"\n" for item in plan[:-1])


@pytest.mark.parametrize(
    ("header", "is_cut"),
    [
        ("name,age", True),
        ('"name","age"', True),
        ("\ufeffname,age\r", True),
        ('name,"age"\r', True),
        ('"na\nme",age', False),
        ('name,a"ge"', False),
        ('na"me,"age', False),
        ("name,age\rb,2", False),
        ("\nname,age", False),
        ("\r\nname,age", False),
    ],
)
def test_splits_of_csv_need_a_header_of_one_line(tmp_path: Path, header: str, is_cut: bool) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes(f"{header}\nx,1\ny,2\nz,3\n".encode())
    plan = plan_splits({"Person": path}, CATALOG, {}, 5)
    assert (len(plan) > 1) == is_cut
    if is_cut:
        assert [row["name"] for _, _, row in read_all(plan)[0]] == ["x", "y", "z"]


def test_splits_of_large_csv_without_quotes_are_many(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("name,age\n" + "".join(f"p{number},{number}\n" for number in range(100)))
    plan = plan_splits({"Person": path}, CATALOG, {}, 100)
    assert len(plan) > 5
    assert [item.first_row for item in plan] == sorted({item.first_row for item in plan})
    rows, left = read_all(plan)
    assert [(place, row["name"]) for _, place, row in rows] == [(n + 1, f"p{n}") for n in range(100)]
    assert left == []
    packed = tmp_path / "people.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert len(plan_splits({"Person": packed}, CATALOG, {}, 100)) == 1


json_lines = st.lists(
    st.sampled_from(
        [
            '{"name": "a"}',
            '{"name": "b", "age": 7}\r',
            '{"age": 2147483648, "name": "c"}',
            '{"name": "d", "age": 1.0}',
            '{"name": 5}',
            '{"nam": "e"}',
            "{",
            "[]",
            "",
            " ",
            '{"name": "é", "age": null}',
            '{"name": "f", "id": "g"}',
        ]
    ),
    max_size=10,
)


@settings(max_examples=80, deadline=None)
@given(lines=json_lines, split_bytes=st.integers(1, 90))
def test_splits_of_typed_lines_have_the_same_rows(lines: list[str], split_bytes: int) -> None:
    # What begins with a bracket is an array.
    text = "\n".join(['{"name": "first"}', *lines])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.ndjson"
        path.write_text(text, encoding="utf-8", newline="")
        source = {"Person": path}
        plan = plan_splits(source, CATALOG, {}, split_bytes)
        assert {item.key for item in plan} == {PEOPLE}
        assert read_all(plan) == read_at_once(source)


@pytest.mark.parametrize("split_rows", [1, 3_000, 1 << 40])
def test_splits_of_orc_read_each_stripe_once_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split_rows: int
) -> None:
    monkeypatch.setattr(splits, "_SPLIT_ROWS", split_rows)
    path = tmp_path / "people.orc"
    table = pa.table({"name": [f"p{number}" for number in range(10_000)], "age": list(range(10_000))})
    po.write_table(table, path, stripe_size=1_024)
    stripes = po.ORCFile(path).nstripes
    assert stripes > 4
    plan = plan_splits({"Person": path}, CATALOG, {})
    assert len(plan) == {1: stripes, 3_000: 4}.get(split_rows, 1)
    rows, left = read_all(plan)
    assert [(place, row["age"]) for _, place, row in rows] == [(n + 1, n) for n in range(10_000)]
    assert left == []


def test_splits_of_json_array_and_feather_are_one_split(tmp_path: Path) -> None:
    table = pa.table({"name": ["a", "b"]})
    (tmp_path / "a.json").write_text('\n [{"name": "a"},\n {"name": "b"}]')
    pf.write_feather(table, tmp_path / "b.feather")
    plan = plan_splits({"Person": tmp_path}, CATALOG, {}, 5)
    assert [item.form for item in plan] == ["json", "arrow"]
    rows, _ = read_all(plan)
    assert [(place, row["name"]) for _, place, row in rows] == [(1, "a"), (2, "b")] * 2


def test_splits_pickled_keep_their_mapping(tmp_path: Path) -> None:
    path = tmp_path / "people.ndjson"
    path.write_text("".join(f'{{"who": {{"called": "p{number}"}}}}\n' for number in range(9)))
    mapping = read_mapping({"Person": {"source": str(path), "key": "who.called"}}, CATALOG)
    assert can_split(None, mapping)
    assert input_bytes(None, CATALOG, {}, mapping) == path.stat().st_size
    plan = pickle.loads(pickle.dumps(plan_splits(None, CATALOG, {}, 60, mapping)))
    assert len(plan) > 3
    rows, left = read_all(plan)
    assert ([row["id"] for _, _, row in rows], left) == ([f"p{number}" for number in range(9)], [])


FILES = {
    "people.csv": "full,years\n"
    + "".join(f"q{number},{years}\n" for number, years in enumerate(["1", "x", "3", "900", "5", "-"])),
    "people.ndjson": "".join(
        json.dumps({"full": f"q{number}", "years": years}) + "\n"
        for number, years in enumerate(["1", "x", "3", "900", "5", "-"])
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_load_in_splits_with_mapping_equals_load_at_once(tmp_path: Path, name: str) -> None:
    graph = begun(tmp_path)
    path = tmp_path / name
    path.write_text(FILES[name], encoding="utf-8")
    entry = {
        "source": str(path),
        "columns": {"name": "full", "age": "years"},
        "casts": {"age": "I32"},
        "null_values": ["-"],
    }
    mapping = read_mapping({"Person": entry}, graph.snapshot().catalog)
    how: dict[str, Any] = {"split_bytes": 12, "run": backwards_and_twice, "mapping": mapping}
    assert len(plan_splits(None, graph.snapshot().catalog, {}, 12, mapping)) > 2
    left = compared(graph, None, "merge", rejecting=True, **how)
    assert [item["line"] for item in left.rejects] == [2, 4]
    assert left.outcome is not None
    assert left.outcome.nodes == {"Person": 4}
    refused = compared(graph, None, "merge", **how)
    assert refused.error is not None
    assert refused.error[1] in (
        f"{path}: Person row 2, column 'years': expected I32, got \"x\"",
        f"{path}: Person line 2, column 'years': expected I32, got \"x\"",
    )
