"""Tables: every change creates a detached version, and versions are immutable."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph.errors import NotFound, StorageError
from omnigraph.store.lance.lance_filters import quote_string
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables import tables as tables_module
from omnigraph.store.tables.tables import COMPACT_AT, COMPACTION_TIERS, EMPTY_VERSION, Tables
from omnigraph.store.tables.uncommitted_fragments import WrittenFragment
from tests.support.places import fresh_memory, lance_root, together
from tests.support.rows import PATH, SCHEMA, arrow, compact, make_table, pin_of, plain, read, stage

ODD_IDS = ["it's", "''", "' OR '1' = '1", '"', "\\", "%", "a\nb", "日本語", "🙂", "x" * 5_000, " ", "NULL"]


def fragments(tables: Tables, pin: TablePin) -> int:
    return len(tables.open(pin.path, pin.version).get_fragments())


def indexed(tables: Tables, pin: TablePin, id_: str) -> dict[str, str | None]:
    """Return the rows of an id through the index; the query plan must use it if it covers any fragment."""
    dataset = tables.open(pin.path, pin.version)
    scanner = dataset.scanner(filter=f"id = {quote_string(id_)}", use_scalar_index=True)
    assert ("ScalarIndexQuery" in scanner.explain_plan()) == any(coverage(tables, pin))
    return plain(scanner.to_table())


def scanned(tables: Tables, pin: TablePin, id_: str) -> dict[str, str | None]:
    """Return the rows of an id without an index."""
    dataset = tables.open(pin.path, pin.version)
    return plain(dataset.scanner(filter=f"id = {quote_string(id_)}", use_scalar_index=False).to_table())


def coverage(tables: Tables, pin: TablePin) -> list[set[int]]:
    """Return the existing fragments that each index segment covers."""
    dataset = tables.open(pin.path, pin.version)
    live = {fragment.fragment_id for fragment in dataset.get_fragments()}
    segments = [segment for item in dataset.describe_indices() for segment in item.segments]
    return [set(segment.fragment_ids) & live for segment in segments]


# --- rows -----------------------------------------------------------------------------------------------


def test_a_new_table_is_empty_at_version_one(uri: str) -> None:
    tables, pin = make_table(uri)
    assert pin.version == EMPTY_VERSION
    assert read(tables, pin) == {}


def test_a_table_is_created_once(uri: str) -> None:
    tables, _ = make_table(uri)
    with pytest.raises(StorageError):
        tables.create(PATH, SCHEMA)


def test_appended_rows_are_read_back(uri: str) -> None:
    tables, pin = make_table(uri)
    staged = tables.stage(pin, insert=arrow({"a": "1", "b": None}))
    assert (staged.base_version, staged.rows, staged.inserted, staged.deleted) == (pin.version, 2, 2, 0)
    assert read(tables, pin_of(staged)) == {"a": "1", "b": None}


def test_a_chain_of_changes_ends_in_what_each_said(uri: str) -> None:
    tables, pin = make_table(uri)
    pin = stage(tables, pin, {"a": "1", "b": "1", "c": "1"})
    pin = stage(tables, pin, {"b": "2", "d": "2"}, delete=["b"])
    pin = stage(tables, pin, delete=["a"])
    pin = stage(tables, pin, {"a": "3"}, delete=["c", "d"])
    assert read(tables, pin) == {"b": "2", "a": "3"}


def test_a_delete_counts_only_rows_that_were_there(uri: str) -> None:
    tables, pin = make_table(uri)
    pin = stage(tables, pin, {"a": "1", "b": "1"})
    staged = tables.stage(pin, delete_ids=["b", "nobody", "b"])
    assert (staged.deleted, staged.rows) == (1, 1)
    assert read(tables, pin_of(staged)) == {"a": "1"}


def test_deleting_from_an_empty_table_is_fine(uri: str) -> None:
    tables, pin = make_table(uri)
    assert read(tables, stage(tables, pin, delete=["a"])) == {}


def test_a_change_of_nothing_changes_nothing(uri: str) -> None:
    tables, pin = make_table(uri)
    pin = stage(tables, pin, {"a": "1"})
    assert read(tables, stage(tables, pin)) == {"a": "1"}
    assert read(tables, stage(tables, pin, {})) == {"a": "1"}


def test_a_table_emptied_by_deletes_can_be_filled_again(uri: str) -> None:
    tables, pin = make_table(uri)
    pin = stage(tables, pin, {"a": "1", "b": "1"})
    pin = stage(tables, pin, delete=["a", "b"])
    assert read(tables, pin) == {}
    assert read(tables, stage(tables, pin, {"a": "2"})) == {"a": "2"}


def test_odd_ids_are_found_and_deleted_one_by_one(uri: str) -> None:
    tables, pin = make_table(uri)
    pin = stage(tables, pin, {id_: id_ for id_ in ODD_IDS})
    assert read(tables, pin) == {id_: id_ for id_ in ODD_IDS}
    left = dict.fromkeys(ODD_IDS)
    for id_ in ODD_IDS:
        pin = stage(tables, pin, delete=[id_])
        del left[id_]
        assert set(read(tables, pin)) == set(left)


def test_odd_ids_are_upserted_at_once(uri: str) -> None:
    tables, pin = make_table(uri)
    pin = stage(tables, pin, dict.fromkeys(ODD_IDS, "old"))
    pin = stage(tables, pin, dict.fromkeys(ODD_IDS, "new"), delete=ODD_IDS)
    assert read(tables, pin) == dict.fromkeys(ODD_IDS, "new")


def test_stage_delete_of_5000_rows_removes_them() -> None:
    tables, pin = make_table(fresh_memory())
    ids = [f"id-{number}" for number in range(8_000)]
    pin = stage(tables, pin, dict.fromkeys(ids[:4_000], "one"))
    pin = stage(tables, pin, dict.fromkeys(ids[4_000:], "two"))
    gone = ids[1_500:6_500]
    staged = tables.stage(pin, delete_ids=gone)
    assert staged.deleted == 5_000
    assert set(read(tables, pin_of(staged))) == set(ids) - set(gone)


def test_scan_applies_filter_projection_and_limit(uri: str) -> None:
    tables, pin = make_table(uri)
    pin = stage(tables, pin, {str(number): str(number % 3) for number in range(30)})
    assert tables.scan(pin, ["id"], "name = '2'").num_rows == 10
    assert tables.scan(pin, ["name"], limit=4).shape == (4, 1)
    assert sum(batch.num_rows for batch in tables.scan_batches(pin, where="name <> '2'")) == 20


def test_open_missing_version_raises_not_found(uri: str) -> None:
    tables, pin = make_table(uri)
    with pytest.raises(NotFound):
        tables.open(pin.path, 2**63 + 5)
    with pytest.raises(NotFound):
        tables.open("nodes/none", 1)


# --- whole tables ---------------------------------------------------------------------------------------


def test_stage_overwrite_replaces_every_row(uri: str) -> None:
    tables, pin = make_table(uri)
    pin = stage(tables, pin, {"a": "1", "b": "1"})
    pin = stage(tables, pin, {"c": "1"}, delete=["a"])
    staged = tables.stage_overwrite(pin, arrow({"a": "9", "z": "9"}).to_batches(), SCHEMA)
    assert (staged.inserted, staged.deleted, staged.rows) == (2, 2, 2)
    assert read(tables, pin_of(staged)) == {"a": "9", "z": "9"}


def test_stage_overwrite_to_and_from_empty_table(uri: str) -> None:
    tables, pin = make_table(uri)
    assert read(tables, pin_of(tables.stage_overwrite(pin, [], SCHEMA))) == {}
    pin = pin_of(tables.stage_overwrite(pin, arrow({"a": "1"}).to_batches(), SCHEMA))
    assert read(tables, pin) == {"a": "1"}
    pin = pin_of(tables.stage_overwrite(pin, [], SCHEMA))
    assert read(tables, pin) == {}
    assert read(tables, stage(tables, pin, {"b": "1"})) == {"b": "1"}


def test_stage_appends_fragments_written_by_others(uri: str) -> None:
    tables, pin = make_table(uri)
    pin = stage(tables, pin, {"a": "1"})
    dataset = tables.open(pin.path, pin.version)
    written = lance.fragment.write_fragments(arrow({"b": "2", "c": "3"}), dataset, mode="append")
    staged = tables.stage_fragments(pin, [WrittenFragment.of(item) for item in written])
    assert (staged.inserted, staged.rows) == (2, 3)
    assert read(tables, pin_of(staged)) == {"a": "1", "b": "2", "c": "3"}


def test_stage_columns_reads_null_in_old_rows(uri: str) -> None:
    tables, pin = make_table(uri)
    pin = stage(tables, pin, {"a": "1", "b": "1"})
    wider = SCHEMA.append(pa.field("age", pa.int64())).append(pa.field("note", pa.string()))
    pin = pin_of(tables.stage_columns(pin, wider))
    rows = pa.table({"id": ["c"], "name": ["2"], "age": [7], "note": ["n"]}, schema=wider)
    pin = pin_of(tables.stage(pin, delete_ids=["b"], insert=rows))
    found = tables.scan(pin).sort_by("id").to_pylist()
    assert found == [
        {"id": "a", "name": "1", "age": None, "note": None},
        {"id": "c", "name": "2", "age": 7, "note": "n"},
    ]
    again = pin_of(compact(tables, pin))
    assert tables.scan(again).sort_by("id").to_pylist() == found


def test_stage_columns_after_nested_columns_keeps_every_value(uri: str) -> None:
    tables = Tables(lance_root(uri))
    blob = pa.struct([("data", pa.large_binary()), ("uri", pa.string())])
    nested = pa.schema([SCHEMA.field("id"), pa.field("blob", blob), pa.field("tags", pa.list_(pa.string()))])
    pin = TablePin(PATH, tables.create(PATH, nested).version, 0, "content")
    old = {"id": "a", "blob": {"data": b"x", "uri": None}, "tags": ["t", "u"]}
    pin = pin_of(tables.stage(pin, insert=pa.Table.from_pylist([old], nested)))
    wide = nested.append(pa.field("vector", pa.list_(pa.float32(), 2)))
    pin = pin_of(tables.stage_columns(pin, wide))
    wider = wide.append(pa.field("age", pa.int64()))
    pin = pin_of(tables.stage_columns(pin, wider))
    new = {"id": "b", "blob": {"data": None, "uri": "u"}, "tags": [], "vector": [1.0, 2.0], "age": 3}
    pin = pin_of(tables.stage(pin, insert=pa.Table.from_pylist([new], wider)))
    expected = [{**old, "vector": None, "age": None}, new]
    assert tables.scan(pin).sort_by("id").to_pylist() == expected
    assert tables.scan(pin_of(compact(tables, pin))).sort_by("id").to_pylist() == expected


def test_compact_keeps_rows_and_drops_deletions(uri: str) -> None:
    tables, pin = make_table(uri)
    for number in range(6):
        pin = stage(tables, pin, {f"{number}{letter}": "x" for letter in "abc"})
    pin = stage(tables, pin, delete=[f"{number}b" for number in range(6)])
    again = pin_of(compact(tables, pin))
    assert read(tables, again) == read(tables, pin)
    found = tables.open(again.path, again.version).get_fragments()
    assert len(found) == 1
    assert found[0].metadata.deletion_file is None


def test_compact_of_compact_table_stages_nothing(uri: str) -> None:
    tables, pin = make_table(uri)
    assert pin_of(compact(tables, pin)) == pin
    pin = stage(tables, pin, {"a": "1"})
    assert pin_of(compact(tables, pin)) == pin


def test_compact_of_deleted_rows_makes_an_empty_table(uri: str) -> None:
    tables, pin = make_table(uri)
    pin = stage(tables, pin, {"a": "1", "b": "1"})
    pin = stage(tables, pin, {"c": "1", "d": "1"}, delete=["a"])
    pin = stage(tables, pin, delete=["b", "c", "d"])
    assert read(tables, pin_of(compact(tables, pin))) == {}


# --- indexes --------------------------------------------------------------------------------------------


def test_indexed_read_equals_full_scan_after_every_write(uri: str) -> None:
    tables, pin = make_table(uri)
    ids = [f"id{number:03}" for number in range(300)]

    def check() -> None:
        for id_ in (*ids[::37], ids[-1], "nobody"):
            assert indexed(tables, pin, id_) == scanned(tables, pin, id_)

    pin = stage(tables, pin, dict.fromkeys(ids[:100], "one"))
    pin = pin_of(tables.stage_index(pin, "id", "BTREE"))
    check()
    pin = stage(tables, pin, dict.fromkeys(ids[100:], "two"))
    check()
    pin = pin_of(tables.stage_index(pin, "id", "BTREE"))
    assert sorted(map(len, coverage(tables, pin))) == [1, 1]
    check()
    pin = stage(tables, pin, dict.fromkeys(ids[::37], "three"), delete=ids[::37])
    check()
    assert indexed(tables, pin, ids[37]) == {ids[37]: "three"}
    pin = stage(tables, pin, delete=ids[::74])
    check()
    assert indexed(tables, pin, ids[74]) == {}
    pin = pin_of(compact(tables, pin))
    check()
    pin = pin_of(tables.stage_index(pin, "id", "BTREE"))
    check()
    pin = pin_of(tables.stage_overwrite(pin, arrow({ids[0]: "four"}).to_batches(), SCHEMA))
    check()
    assert read(tables, pin) == {ids[0]: "four"}


def test_stage_index_covers_only_uncovered_fragments(uri: str) -> None:
    tables, pin = make_table(uri)
    for number in range(3):
        pin = stage(tables, pin, {str(number): "x"})
    pin = pin_of(tables.stage_index(pin, "id", "BTREE"))
    pin = stage(tables, pin, {"9": "x"})
    pin = pin_of(tables.stage_index(pin, "id", "BTREE"))
    segments = coverage(tables, pin)
    assert sorted(map(len, segments)) == [1, 3]
    assert len(set().union(*segments)) == 4


def test_stage_index_of_covered_table_stages_nothing(uri: str) -> None:
    tables, pin = make_table(uri)
    assert pin_of(tables.stage_index(pin, "id", "BTREE")) == pin
    pin = stage(tables, pin, {"a": "1"})
    pin = pin_of(tables.stage_index(pin, "id", "BTREE"))
    assert pin_of(tables.stage_index(pin, "id", "BTREE")) == pin


def test_indexed_read_finds_unusual_ids(uri: str) -> None:
    tables, pin = make_table(uri)
    pin = stage(tables, pin, {id_: id_[:9] for id_ in ODD_IDS})
    pin = pin_of(tables.stage_index(pin, "id", "BTREE"))
    assert [indexed(tables, pin, id_) for id_ in ODD_IDS] == [{id_: id_[:9]} for id_ in ODD_IDS]
    pin = stage(tables, pin, delete=ODD_IDS[::2])
    assert set(read(tables, pin)) == set(ODD_IDS[1::2])


def test_fold_of_indexed_fragments_keeps_indexed_reads() -> None:
    tables, pin = make_table(fresh_memory())
    model: dict[str, str | None] = {}
    for number in range(3 * COMPACT_AT):
        id_, gone = f"id{number}", f"id{number - 5}"
        pin = stage(tables, pin, {id_: str(number)}, delete=[gone] if number % 3 else [])
        model[id_] = str(number)
        if number % 3:
            model.pop(gone, None)
        if number % 20 == 10:
            pin = pin_of(tables.stage_index(pin, "id", "BTREE"))
    assert read(tables, pin) == model
    for number in range(3 * COMPACT_AT):
        id_ = f"id{number}"
        assert indexed(tables, pin, id_) == ({id_: model[id_]} if id_ in model else {})


# --- staying flat ---------------------------------------------------------------------------------------


def test_500_one_row_writes_keep_few_fragments() -> None:
    tables, pin = make_table(fresh_memory())
    most, costs = 0, []
    for number in range(500):
        before = lance.iops_counter()
        pin = stage(tables, pin, {str(number): str(number)})
        costs.append(lance.iops_counter() - before)
        most = max(most, fragments(tables, pin))
    assert most <= 2 * COMPACT_AT
    assert read(tables, pin) == {str(number): str(number) for number in range(500)}
    # A write with a compaction reads the compacted fragments. All other writes read nothing.
    quiet = [cost for cost in costs if cost == 0]
    assert len(quiet) > 450
    assert max(costs[250:]) <= max(costs[:250])


def test_upserts_of_the_same_rows_keep_few_fragments() -> None:
    tables, pin = make_table(fresh_memory())
    model: dict[str, str | None] = {}
    most = 0
    for number in range(200):
        id_ = str(number * 7 % 40)
        pin = stage(tables, pin, {id_: str(number)}, delete=[id_])
        model[id_] = str(number)
        most = max(most, fragments(tables, pin))
    assert read(tables, pin) == model
    assert most <= 2 * COMPACT_AT


def test_fold_begins_with_the_smallest_full_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_module, "COMPACT_AT", 3)
    monkeypatch.setattr(tables_module, "COMPACTION_TIERS", (2, 6, 24))
    tables, pin = make_table(fresh_memory())
    model: dict[str, str | None] = {}
    for number in range(200):
        pin = stage(tables, pin, {str(number): "x"})
        model[str(number)] = "x"
        assert fragments(tables, pin) <= 3 * 3 + 200 // 24 + 1
    assert read(tables, pin) == model
    assert tuple(sorted(COMPACTION_TIERS)) == COMPACTION_TIERS


def test_fold_and_delete_in_one_write_keep_the_other_rows() -> None:
    tables, pin = make_table(fresh_memory())
    for number in range(COMPACT_AT + 3):
        pin = stage(tables, pin, {f"{number}a": "x", f"{number}b": "x"})
    gone = ["0a", "1a", "1b", "5b"]
    after = stage(tables, pin, {"new": "y"}, delete=gone)
    expected = {id_: name for id_, name in read(tables, pin).items() if id_ not in gone} | {"new": "y"}
    assert read(tables, after) == expected
    assert fragments(tables, after) < COMPACT_AT


# --- staged only ----------------------------------------------------------------------------------------


def test_staging_does_not_change_the_rows_of_existing_pins(uri: str) -> None:
    tables, pin = make_table(uri)
    seen = {pin: read(tables, pin)}

    def remember(new: TablePin) -> TablePin:
        seen[new] = read(tables, new)
        return new

    pin = remember(stage(tables, pin, {"a": "1", "b": "1", "c": "1"}))
    pin = remember(stage(tables, pin, {"b": "2"}, delete=["b"]))
    base = pin
    for number in range(COMPACT_AT + 2):
        pin = remember(stage(tables, pin, {f"x{number}": "1"}))
    remember(stage(tables, base, {"other": "1"}, delete=["a"]))
    remember(pin_of(tables.stage_overwrite(pin, [], SCHEMA)))
    remember(pin_of(compact(tables, pin)))
    remember(pin_of(tables.stage_index(pin, "id", "BTREE")))
    remember(pin_of(tables.stage_columns(pin, SCHEMA.append(pa.field("age", pa.int64())))))
    cold = Tables(lance_root(uri))
    for old, rows in seen.items():
        assert read(tables, old) == rows
        assert read(cold, old) == rows


def test_staging_of_every_kind_leaves_the_head_version(uri: str) -> None:
    tables, pin = make_table(uri)
    pin = stage(tables, pin, {"a": "1", "b": "1"})
    pin = stage(tables, pin, {"b": "2"}, delete=["b"])
    pin = pin_of(tables.stage_index(pin, "id", "BTREE"))
    pin = pin_of(compact(tables, pin))
    pin = pin_of(tables.stage_columns(pin, SCHEMA.append(pa.field("age", pa.int64()))))
    pin = pin_of(tables.stage_overwrite(pin, [], tables.open(pin.path, pin.version).schema))
    assert pin.version >= 2**63
    latest = lance_root(uri).open(PATH)
    assert latest.version == latest.latest_version == EMPTY_VERSION
    assert latest.count_rows() == 0


def test_staging_by_threads_on_one_base_is_independent(uri: str) -> None:
    tables, pin = make_table(uri)
    pin = stage(tables, pin, {"a": "1", "b": "1", "c": "1"})
    works = [
        partial(stage, tables, pin, {"b": str(number), f"n{number}": "x"}, ["b", "a"]) for number in range(8)
    ]
    outcomes = together(works)
    pins = [outcome for outcome in outcomes if isinstance(outcome, TablePin)]
    assert len({item.version for item in pins}) == 8
    for number, staged in enumerate(pins):
        assert read(tables, staged) == {"c": "1", "b": str(number), f"n{number}": "x"}
    assert read(tables, pin) == {"a": "1", "b": "1", "c": "1"}


def test_read_by_another_handle_returns_the_same_rows(uri: str) -> None:
    tables, pin = make_table(uri)
    pin = stage(tables, pin, {"a": "1"})
    pin = stage(tables, pin, {"b": "1"}, delete=["a"])
    assert read(Tables(lance_root(uri)), pin) == {"b": "1"}


def test_open_table_handles_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_module, "_CACHED_TABLES", 4)
    tables, pin = make_table(fresh_memory())
    for number in range(10):
        pin = stage(tables, pin, {str(number): "x"})
    assert len(tables._open) == 4
    assert tables.open(pin.path, pin.version) is tables.open(pin.path, pin.version)


def test_tables_in_folder_with_unusual_name_are_readable(tmp_path: Path) -> None:
    tables, pin = make_table(str(tmp_path / "my graph's ü%20#1?x=y"))
    for number in range(COMPACT_AT + 2):
        pin = stage(tables, pin, {str(number): "x"}, delete=[str(number - 1)] if number % 5 == 0 else [])
    assert read(Tables(lance_root(str(tmp_path / "my graph's ü%20#1?x=y"))), pin) == read(tables, pin)
