"""However an input is cut, its splits together have every record once, in order, at its place."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import InvalidInput, NotFound
from omnigraph.write import splits
from omnigraph.write.input import Reject
from omnigraph.write.splits import Split, SplitReader, can_split, input_bytes, plan_splits
from tests.catalog.test_identity import catalog_of

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
def test_the_splits_of_a_file_have_every_line_once_in_order_with_its_number(
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


def test_a_line_longer_than_what_is_read_at_once_belongs_to_one_split(tmp_path: Path) -> None:
    long = "x" * (2 << 20)
    path = tmp_path / "in.jsonl"
    path.write_bytes(record("a") + b"\n" + record(long) + b"\n" + record("b"))
    for split_bytes in (1 << 18, 1 << 20, (2 << 20) + 7):
        assert texts(plan_splits(path, CATALOG, {}, split_bytes)) == [(1, "a"), (2, long), (3, "b")]


def test_splits_can_be_read_in_any_order_and_again(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n".join(record(f"{number}") for number in range(20)))
    plan = plan_splits(path, CATALOG, {}, 100)
    assert len(plan) > 5
    alone = {item.number: texts([item]) for item in reversed(plan)}
    assert alone == {item.number: texts([item]) for item in plan}
    assert [text for number in sorted(alone) for _, text in alone[number]] == [f"{n}" for n in range(20)]


def test_the_files_of_a_folder_are_split_one_after_the_other(tmp_path: Path) -> None:
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
def test_the_row_groups_of_a_parquet_file_are_read_once_in_order(groups: list[int], split_rows: int) -> None:
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


def test_a_csv_file_is_one_split_whatever_its_cells_hold(tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    path.write_bytes(b'text\n"a\nb"\n"c\n"\nd\n')
    (only,) = plan_splits({"N": path}, CATALOG, {}, 2)
    assert (only.form, only.key) == ("csv", "node:N")
    assert texts([only]) == [(1, "a\nb"), (2, "c\n"), (3, "d")]


def test_what_cannot_be_typed_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    csv, records = tmp_path / "n.csv", tmp_path / "n.jsonl"
    csv.write_bytes(b"text\nx\n")
    records.write_bytes(record("x"))
    with pytest.raises(InvalidInput, match="does not say what type"):
        plan_splits(csv, CATALOG, {})
    with pytest.raises(InvalidInput, match="neither CSV nor Parquet"):
        plan_splits({"N": records}, CATALOG, {})
    with pytest.raises(NotFound, match="no type 'Nn'"):
        plan_splits({"Nn": csv}, CATALOG, {})
    with pytest.raises(NotFound, match="there is no file"):
        plan_splits(tmp_path / "m.jsonl", CATALOG, {})


def test_the_rejects_of_a_split_have_places_in_the_split(tmp_path: Path) -> None:
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


def test_only_files_can_be_split_and_their_bytes_are_known(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(record("a"))
    assert can_split(path)
    assert can_split({"N": str(path)})
    assert not any(map(can_split, ({}, [{"type": "N"}], {"N": pa.table({"text": ["a"]})})))
    assert input_bytes(str(tmp_path), CATALOG, {}) == len(record("a"))
