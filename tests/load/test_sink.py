"""Sinks: staged part by part, committed once or given up, by processes that know each other from storage alone."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.errors import (
    Conflict,
    ConstraintViolation,
    ExternalBlobError,
    InvalidInput,
    NotFound,
    PreconditionFailed,
)
from omnigraph.graph.pipeline_runs import PipelineRun
from omnigraph.graph.publish import PublishReceipt
from omnigraph.graph.repository import Repository
from omnigraph.load import sink as sinks
from omnigraph.load.sink import Sink, SinkPart, SinkStream, open_sink, open_stream
from omnigraph.load.sink_options import SinkOptions
from omnigraph.maintain.cleanup import cleanup
from omnigraph.rules.load_mode import LoadMode, WriteMode
from omnigraph.spark.datasource.source_options import stream_options, write_options
from tests.catalog.test_identity import catalog_of
from tests.load.loads import image
from tests.spark.loads import BEFORE, CATALOG, MODES, text_of
from tests.spark.loads import at_once as load_at_once
from tests.support.external_objects import web_objects

Row = dict[str, Any]
QUERY = "6c8e2d0a-query"


@pytest.fixture
def graph(tmp_path: Path) -> Repository:
    made = Repository.init(str(tmp_path / "graph"), CATALOG, durability="os")
    path = tmp_path / "before.jsonl"
    path.write_text(text_of(BEFORE), encoding="utf-8")
    assert load_at_once(made, path, "append", "main").error is None
    return made


def asked(graph: Repository, type_: str = "Person", mode: LoadMode = "append", **more: Any) -> SinkOptions:
    return SinkOptions(graph.location.uri, type_, more.pop("branch", "main"), mode, {}, **more)


def elsewhere(value: Any) -> Any:
    """A value as it arrives in another process."""
    return pickle.loads(pickle.dumps(value))


def parts_of(rows: Sequence[Row], size: int = 3) -> list[Sequence[Row]]:
    return [rows[first : first + size] for first in range(0, len(rows), size)]


def batches(rows: Sequence[Row]) -> list[pa.RecordBatch]:
    return pa.Table.from_pylist(list(rows)).to_batches(max_chunksize=2) if rows else []


def staged(sink: Sink, rows: Sequence[Row]) -> list[SinkPart]:
    """Every part twice, the last one first; now the one attempt is reported, now the other."""
    cut = parts_of(rows) or [()]
    found = []
    for number, part in reversed(list(enumerate(cut))):
        attempts = [elsewhere(elsewhere(sink).stage(number, batches(part))) for _ in range(2)]
        found.append(attempts[number % 2])
    return found


def written(graph: Repository, rows: Sequence[Row], **how: Any) -> PublishReceipt | None:
    sink = open_sink(asked(graph, **how), list(rows[0]))
    done: PublishReceipt | None = elsewhere(sink).commit(staged(sink, rows))
    return done


def people(first: int, last: int, **data: Any) -> list[Row]:
    return [{"age": n, "name": f"q{n}", **data} for n in range(first, last)]


def rows_of(folder: Path) -> set[Path]:
    """The files with rows."""
    return {path for kind in ("nodes", "edges") for path in (folder / "graph" / kind).rglob("data/*.lance")}


def under_way(folder: Path) -> set[Path]:
    """What bulk writes on their way have set down."""
    return {path for kind in ("__recovery", "__staging") for path in (folder / "graph" / kind).rglob("*")}


def found_files(folder: Path) -> set[Path]:
    return rows_of(folder) | under_way(folder)


# --- one write -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_sink_leaves_what_a_load_of_the_same_rows_leaves(graph: Repository, mode: WriteMode) -> None:
    for branch in ("load", "sink"):
        graph.create_branch(branch)
    knows = [{"from": f"p{n % 3}", "to": "p0", "id": f"k{n}"} for n in range(2 if mode == "merge" else 9, 18)]
    if mode == "merge":
        knows += [{"from": "p2", "to": "p2", "id": "k4"}, {"from": "p2", "to": "p1", "id": "k0"}]
    wanted = load_at_once(graph, {"Knows": pa.Table.from_pylist(knows)}, mode, "load")
    done = written(graph, knows, type_="edge:Knows", mode=mode, branch="sink", actor="ana", message="again")
    assert done is not None
    assert (done.commit.operation, done.commit.actor, done.commit.message) == ("load", "ana", "again")
    assert image(graph, "sink") == image(graph, "load") != image(graph)
    assert wanted.outcome is not None
    assert wanted.outcome.superseded == (mode == "merge")


def test_what_a_sink_commits_is_indexed(graph: Repository) -> None:
    written(graph, [{"src": "p0", "dst": "p1"}, {"dst": "p0", "src": "p2"}], type_="Knows")
    pin, table = graph.snapshot().pin("edge:Knows"), CATALOG.tables["edge:Knows"]
    assert [
        graph.tables.unindexed_fragments(pin, table.physical(name), "BTREE") for name in ("id", "src", "dst")
    ] == [[]] * 3


def test_a_sink_leaves_no_intent_and_nothing_set_down(graph: Repository, tmp_path: Path) -> None:
    sink = open_sink(asked(graph), ["name"])
    parts = staged(sink, people(0, 4))
    assert under_way(tmp_path)
    sink.commit(parts)
    assert not under_way(tmp_path)


@pytest.mark.parametrize(
    "rows",
    [
        [*people(0, 6), {"age": 1, "name": "p0"}, {"age": 1, "name": "p1"}],
        [*people(0, 6), {"age": 999, "name": "x"}, {"age": -1, "name": "y"}],
    ],
    ids=["between rows", "of a row"],
)
@pytest.mark.parametrize("then", ["abort", "nothing"])
def test_a_refused_commit_leaves_nothing_whether_or_not_it_is_aborted(
    graph: Repository, tmp_path: Path, rows: list[Row], then: str
) -> None:
    before, files = image(graph), found_files(tmp_path)
    sink = open_sink(asked(graph), list(rows[0]))
    # One attempt each: what another attempt wrote nobody can know of.
    parts = [sink.stage(number, batches(part)) for number, part in enumerate(parts_of(rows))]
    assert found_files(tmp_path) > files
    with pytest.raises(ConstraintViolation) as refused:
        elsewhere(sink).commit(parts)
    assert len(refused.value.violations) == 2
    if then == "abort":
        elsewhere(sink).abort(parts)
    assert found_files(tmp_path) == files
    assert (image(graph), [item.operation for item in graph.commits()]) == (before, ["load", "init"])


def test_a_value_that_fits_no_column_is_refused_by_the_commit(graph: Repository, tmp_path: Path) -> None:
    files = found_files(tmp_path)
    sink = open_sink(asked(graph), ["name", "age"])
    parts = [
        sink.stage(0, batches(people(0, 3))),
        sink.stage(1, [pa.RecordBatch.from_pylist([{"name": "x", "age": 2**40}])]),
    ]
    with pytest.raises(InvalidInput, match="row 4"):
        sink.commit(parts)
    assert found_files(tmp_path) == files


def test_an_aborted_write_leaves_nothing(graph: Repository, tmp_path: Path) -> None:
    before, files = image(graph), found_files(tmp_path)
    sink = open_sink(asked(graph), ["name"])
    part = sink.stage(1, batches(people(0, 3)))
    assert found_files(tmp_path) > files
    elsewhere(sink).abort([part])
    assert (found_files(tmp_path), image(graph)) == (files, before)
    with pytest.raises(Conflict, match="discarded"):
        sink.commit([part])


def test_an_abort_after_a_commit_that_nobody_heard_of_takes_nothing_from_it(
    graph: Repository, tmp_path: Path
) -> None:
    """Spark aborts when the process that commits dies, also when it dies right after the commit."""
    sink = open_sink(asked(graph), ["name"])
    parts = staged(sink, people(0, 5))
    sink.commit(parts)
    after, files = image(graph), found_files(tmp_path)
    elsewhere(sink).abort(parts)
    assert (image(Repository.open(graph.location.uri)), found_files(tmp_path)) == (after, files)


def test_cleanup_leaves_what_is_staged_alone(graph: Repository) -> None:
    sink = open_sink(asked(graph), ["name"])
    parts = staged(sink, people(0, 5))
    cleanup(Repository.open(graph.location.uri), keep=1, confirm=True, grace=timedelta(0))
    sink.commit(parts)
    assert len(image(Repository.open(graph.location.uri))["node:Person"]) == 8


def test_rows_that_were_staged_for_another_schema_are_a_conflict(graph: Repository) -> None:
    sink = open_sink(asked(graph), ["name"])
    first, second = staged(sink, people(0, 5))
    with pytest.raises(Conflict, match="schema changed"):
        sink.commit([first, replace(second, schema="sha256:other")])


@pytest.mark.parametrize(("mode", "left"), [("append", 2), ("merge", 2), ("overwrite", 0)])
def test_no_rows_are_a_commit_too(graph: Repository, mode: LoadMode, left: int) -> None:
    sink = open_sink(asked(graph, "Knows", mode), ["from", "to"])
    assert sink.commit(staged(sink, [])) is not None
    assert (len(image(graph)["edge:Knows"]), len(list(graph.commits()))) == (left, 3)


# --- what it is asked for ---------------------------------------------------------------------------------


def test_merge_of_equal_rows_makes_no_commit_and_deletes_what_it_staged(
    graph: Repository, tmp_path: Path
) -> None:
    rows = people(0, 7)
    assert written(graph, rows, mode="merge") is not None
    head, files = graph.head(), rows_of(tmp_path)
    sink = open_sink(asked(graph, mode="merge"), list(rows[0]))
    parts = [sink.stage(number, batches(part)) for number, part in enumerate(parts_of(rows[::-1]))]
    assert sink.commit(parts) is None
    assert (graph.head(), rows_of(tmp_path), under_way(tmp_path)) == (head, files, set())
    changed = [{**row, "age": 99 if row["name"] == "q6" else row["age"]} for row in rows]
    assert written(graph, changed, mode="merge") is not None


@pytest.mark.parametrize("mode", ["merge", "patch", "delete"])
def test_run_without_changed_rows_commits_its_state_and_no_table(
    graph: Repository, tmp_path: Path, mode: LoadMode
) -> None:
    rows = people(0, 7)
    assert written(graph, rows, mode="merge") is not None
    before, files = graph.snapshot("main").commit, rows_of(tmp_path)
    given = [{"name": "absent"}] if mode == "delete" else rows
    sink = open_sink(asked(graph, mode=mode), list(given[0]))
    parts = [sink.stage(number, batches(part)) for number, part in enumerate(parts_of(given))]
    run = PipelineRun("shop", None, "{}")
    done = replace(sink, request=replace(sink.request, run=run)).commit(parts)
    assert done is not None
    assert done.commit.tables == before.tables
    assert done.commit.runs == {"shop": done.commit.id}
    assert (rows_of(tmp_path), under_way(tmp_path)) == (files, set())


def test_a_branch_is_made_on_the_way(graph: Repository) -> None:
    with pytest.raises(NotFound, match="branch 'etl' not found"):
        open_sink(asked(graph, branch="etl"), ["name"])
    done = written(graph, people(0, 3), branch="etl", create_from="main")
    assert done is not None
    assert done.commit.branch == "etl"
    assert [len(image(graph, branch)["node:Person"]) for branch in ("main", "etl")] == [3, 6]
    written(graph, people(3, 4), branch="etl", create_from="main")
    assert len(image(graph, "etl")["node:Person"]) == 7


@pytest.mark.parametrize(
    ("type_", "names", "message"),
    [
        ("Person", ["name", "aeg"], "aeg"),
        ("Person", ["age"], "name"),
        ("Knows", ["id", "from"], "to"),
        ("Knows", ["from", "src", "to"], "src"),
        ("Persn", ["name"], "did you mean `Person`"),
    ],
)
def test_columns_are_refused_before_anything_is_made(
    graph: Repository, tmp_path: Path, type_: str, names: list[str], message: str
) -> None:
    files = found_files(tmp_path)
    for begin in (open_sink, open_stream):
        with pytest.raises((InvalidInput, NotFound), match=message):
            begin(asked(graph, type_, branch="etl", create_from="main"), names)
    assert found_files(tmp_path) == files
    assert list(graph.branches()) == ["main"]


@pytest.mark.parametrize(
    ("given", "names", "message"),
    [
        (
            {"opColumn": "op"},
            ["name"],
            "missing column 'op', which has the operation or the order of the rows",
        ),
        (
            {"opColumn": "op", "orderBy": "seq"},
            ["name", "op"],
            "missing column 'seq', which has the operation",
        ),
        ({"opColumn": "op"}, ["age", "op"], "missing column 'name' of the key of 'node:Person'"),
        ({"mode": "patch"}, ["age"], "missing column 'name' of the key of 'node:Person'"),
        ({"mode": "delete"}, ["age"], "missing column 'name' of the key of 'node:Person'"),
        (
            {"type": "", "typeColumn": "kind"},
            ["name"],
            "missing column 'kind', which has the type of each row",
        ),
        (
            {"type": "", "typeColumn": "kind", "opColumn": "op"},
            ["kind", "name"],
            "'op', which has the operation",
        ),
        (
            {"type": "", "typeColumn": "kind", "opColumn": "op", "orderBy": "seq"},
            ["kind", "name", "op"],
            "'seq', which has the order",
        ),
    ],
)
def test_write_of_operations_without_their_columns_is_refused_before_anything_is_made(
    graph: Repository, tmp_path: Path, given: dict[str, str], names: list[str], message: str
) -> None:
    options = {"uri": graph.location.uri, "type": "Person", "mode": "merge", **given}
    files = found_files(tmp_path)
    for begin, read in ((open_sink, write_options), (open_stream, stream_options)):
        with pytest.raises(InvalidInput, match=message):
            begin(read(options, overwrite=False), names)
    assert found_files(tmp_path) == files


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"name": "a", "op": "X", "seq": 1}, """row 1: column 'op': unknown operation "X\""""),
        ({"name": "a", "op": None, "seq": 1}, "row 1: column 'op': unknown operation null"),
        ({"name": "a", "op": "U", "seq": None}, "column 'seq' orders the rows: expected a number"),
        ({"name": None, "op": "D", "seq": 1}, "row 1: node Person is missing a non-null @key value"),
    ],
)
def test_write_with_an_unknown_operation_or_no_order_is_refused_by_the_commit(
    graph: Repository, row: Row, message: str
) -> None:
    options = {
        "uri": graph.location.uri,
        "type": "Person",
        "mode": "merge",
        "opColumn": "op",
        "orderBy": "seq",
    }
    sink = open_sink(write_options(options, overwrite=False), list(row))
    schema = pa.schema([("name", pa.string()), ("op", pa.string()), ("seq", pa.int64())])
    part = sink.stage(0, [pa.RecordBatch.from_pylist([row], schema)])
    with pytest.raises(InvalidInput) as refused:
        sink.commit([part])
    assert message in str(refused.value)


def test_a_branch_that_is_not_where_it_should_be_is_refused_at_once(
    graph: Repository, tmp_path: Path
) -> None:
    head = graph.head().commit.id
    written(graph, people(0, 1), if_commit=head)
    with pytest.raises(PreconditionFailed):
        open_sink(asked(graph, if_commit=head), ["name"])
    assert not under_way(tmp_path)


def test_a_write_with_a_key_is_done_once(graph: Repository, tmp_path: Path) -> None:
    asked_for: Row = {"idempotency_key": "monday", "if_commit": graph.head().commit.id}
    first = written(graph, people(0, 4), **asked_for)
    files, after = found_files(tmp_path), image(graph)
    sink = open_sink(asked(graph, **asked_for), ["age", "name"])
    again = sink.commit([sink.stage(0, batches(people(0, 4)))])
    assert first is not None
    assert again == PublishReceipt(first.commit, replayed=True)
    assert (found_files(tmp_path), image(graph)) == (files, after)
    other = open_sink(asked(graph, mode="merge", **asked_for), ["age", "name"])
    with pytest.raises(Conflict, match="different request"):
        other.commit([other.stage(0, batches(people(0, 4)))])
    assert found_files(tmp_path) == files


# --- streams ----------------------------------------------------------------------------------------------


def stream_of(graph: Repository, mode: LoadMode = "append", **more: Any) -> SinkStream:
    found: SinkStream = elsewhere(open_stream(asked(graph, mode=mode, **more), ["age", "name"]))
    return found


def batch_of(graph: Repository, number: int, rows: Sequence[Row], query: str = QUERY, **how: Any) -> Any:
    """A batch as Spark does it: the stream is made anew to commit."""
    stream = stream_of(graph, **how)
    parts = [
        elsewhere(stream.stage(query, number, place, batches(part)))
        for place, part in enumerate([*parts_of(rows), ()])
    ]
    return stream_of(graph, **how).commit(number, parts)


def test_each_batch_is_one_commit_however_often_it_is_done(graph: Repository, tmp_path: Path) -> None:
    for number in (0, 1, 1, 0, 1, 2):
        batch_of(graph, number, people(number * 4, number * 4 + 4))
    assert len(list(graph.commits())) == 2 + 3
    assert len(image(graph)["node:Person"]) == 3 + 12
    assert not under_way(tmp_path)


def test_a_batch_without_rows_is_no_commit(graph: Repository, tmp_path: Path) -> None:
    files = found_files(tmp_path)
    assert batch_of(graph, 0, []) is None
    assert len(list(graph.commits())) == 2
    assert found_files(tmp_path) == files


def test_streams_do_not_take_each_others_batches_for_their_own(graph: Repository) -> None:
    graph.create_branch("other")
    batch_of(graph, 0, people(0, 2))
    batch_of(graph, 0, people(2, 4), query="another")
    batch_of(graph, 0, people(0, 2), branch="other")
    assert len(image(graph)["node:Person"]) == 7
    assert len(image(graph, "other")["node:Person"]) == 5


def test_a_refused_batch_leaves_nothing_and_can_come_again_as_a_merge(
    graph: Repository, tmp_path: Path
) -> None:
    files = found_files(tmp_path)
    with pytest.raises(ConstraintViolation):
        batch_of(graph, 0, [*people(0, 5), {"age": 7, "name": "p0"}])
    assert found_files(tmp_path) == files
    batch_of(graph, 0, [*people(0, 5), {"age": 7, "name": "p0"}], mode="merge")
    assert {row["name"]: row["age"] for row in image(graph)["node:Person"]}["p0"] == 7


def test_an_aborted_batch_leaves_nothing_and_can_come_again(graph: Repository, tmp_path: Path) -> None:
    files = found_files(tmp_path)
    stream = stream_of(graph)
    part = stream.stage(QUERY, 0, 1, batches(people(0, 2)))
    stream_of(graph).abort(0, [part])
    assert found_files(tmp_path) == files
    stream_of(graph).abort(0, [])
    batch_of(graph, 0, people(0, 2))
    assert len(image(graph)["node:Person"]) == 5


def test_a_stream_that_died_on_the_way_leaves_one_intent_however_often_it_does(
    graph: Repository, tmp_path: Path
) -> None:
    for _ in range(3):
        stream_of(graph).stage(QUERY, 0, 1, batches(people(0, 2)))
    assert len(graph.intents.pending().ids) == 1
    cleanup(Repository.open(graph.location.uri), keep=1, confirm=True, grace=timedelta(0))
    batch_of(graph, 0, people(0, 2))
    assert not graph.intents.pending()
    assert not under_way(tmp_path)


def test_an_abort_after_a_batch_that_nobody_heard_of_takes_nothing_from_it(graph: Repository) -> None:
    stream = stream_of(graph)
    part = stream.stage(QUERY, 0, 0, batches(people(0, 2)))
    stream.commit(0, [part])
    stream_of(graph).abort(0, [part])
    assert len(image(Repository.open(graph.location.uri))["node:Person"]) == 5


def test_a_batch_stands_on_the_branch_as_it_is_then(graph: Repository) -> None:
    """Cleanup may have taken the versions of the time when the stream began."""
    batch_of(graph, 0, people(0, 2))
    for number in range(3):
        written(graph, people(10 * number, 10 * number + 1), mode="merge")
    cleanup(graph, keep=1, confirm=True, grace=timedelta(0))
    batch_of(graph, 1, people(2, 4))
    assert len(image(graph)["node:Person"]) == 3 + 4 + 2


def test_small_batches_are_left_for_optimize_to_index(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = CATALOG.tables["node:Person"]

    def waiting() -> int:
        pin = graph.snapshot().pin("node:Person")
        return len(graph.tables.unindexed_fragments(pin, table.physical("id"), "BTREE"))

    before = waiting()
    batch_of(graph, 0, people(0, 2))
    assert waiting() == before + 1
    monkeypatch.setattr(sinks, "_MIN_INDEXED_ROWS", 2)
    batch_of(graph, 1, people(2, 4))
    assert waiting() == 0


# --- options ----------------------------------------------------------------------------------------------


def refusals() -> Iterator[tuple[Any, dict[str, str], bool, str]]:
    for read in (write_options, stream_options):
        yield read, {"type": "P"}, False, "'uri' is missing"
        yield read, {"uri": "g"}, False, "'type' is missing"
        yield read, {"uri": "g", "type": "P", "brnach": "x"}, False, "did you mean `branch`"
        yield read, {"uri": "g", "type": "P", "columns": "x"}, False, "unknown option 'columns'"
        yield read, {"uri": "g", "type": "P", "mode": "upsert"}, False, "append, merge"
        yield read, {"uri": "memory://x", "type": "P"}, False, "is in the memory of one process"
        yield read, {"uri": "g", "type": "P", "opColumn": "op"}, False, "does not apply to mode 'append'"
        yield read, {"uri": "g", "type": "P", "orderBy": "at"}, False, "does not apply to mode 'append'"
        yield read, {"uri": "g", "type": "P", "typeColumn": "t"}, False, "the type is specified twice"
        yield read, {"uri": "g", "type": "P", "requireExisting": "yes"}, False, "expected true or false"
        yield read, {"uri": "g", "type": "P", "index": "soon"}, False, "expected now or later, got 'soon'"
    yield write_options, {"uri": "g", "type": "P", "mode": "merge"}, True, "the Spark mode is overwrite"
    yield write_options, {"uri": "g", "type": "P", "mode": "overwrite"}, False, "the Spark mode is append"
    yield write_options, {"uri": "g", "type": "P", "checkpointLocation": "c"}, False, "unknown option"
    yield stream_options, {"uri": "g", "type": "P", "idempotencyKey": "k"}, False, "unknown option"
    yield stream_options, {"uri": "g", "type": "P", "mode": "overwrite"}, False, "append, merge"
    yield stream_options, {"uri": "g", "type": "P"}, True, "output mode 'complete'"


@pytest.mark.parametrize(("read", "options", "overwrite", "message"), list(refusals()))
def test_options_that_mean_nothing_are_refused_in_words(
    read: Any, options: dict[str, str], overwrite: bool, message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(options, overwrite=overwrite)
    assert message in str(refused.value)


def test_options_are_read_whatever_their_case(tmp_path: Path) -> None:
    given = {
        "PATH": str(tmp_path), "Type": "P", "branch": "b", "MODE": "merge", "CREATEFROM": "main", "Message": "m",
        "actor": "a", "ifCommit": "c", "idempotencyKey": "k", "storage.secret_access_key": "hush",
    }  # fmt: skip
    found = write_options(given, overwrite=False)
    assert found == SinkOptions(
        found.uri, "P", "b", "merge", {"secret_access_key": "hush"}, "main", "m", "a", "c", "k"
    )
    assert "hush" not in repr(found)


# --- external blobs --------------------------------------------------------------------------------------


def test_sink_refuses_external_uris_unless_the_option_allows_their_base(tmp_path: Path) -> None:
    catalog = catalog_of("node Doc { name: String @key  body: Blob? }")
    graph = Repository.init(str(tmp_path / "graph"), catalog, durability="os")
    with web_objects({"/docs/a": 200}) as web:

        def write(uri: str, bases: str) -> PublishReceipt | None:
            rows = [{"name": "a", "body": {"data": None, "uri": uri}}]
            given = {"uri": graph.location.uri, "type": "Doc", "externalBlobs": bases}
            sink = open_sink(write_options(given, overwrite=False), list(rows[0]))
            done: PublishReceipt | None = sink.commit(staged(sink, rows))
            return done

        allowed = f"s3://other/ , {web.url}/docs/"
        for uri, bases in ((f"{web.url}/docs/a", ""), (f"{web.url}/private/a", allowed)):
            with pytest.raises(
                ConstraintViolation, match=r"Doc\.body: external URI .* is not allowed"
            ) as caught:
                write(uri, bases)
            assert "base64:" in str(caught.value)
        assert web.requests == []
        with pytest.raises(ExternalBlobError):
            write(f"{web.url}/docs/missing", allowed)
        assert not rows_of(tmp_path)
        assert write(f"{web.url}/docs/a", allowed) is not None
    (row,) = graph.snapshot("main").scan("node:Doc").to_pylist()
    assert {"data": None, "uri": f"{web.url}/docs/a"} in row.values()


def test_write_options_with_invalid_base_of_external_blobs_are_refused() -> None:
    with pytest.raises(InvalidInput, match="invalid base 's3://b' of external blobs"):
        write_options({"uri": "g", "type": "Doc", "externalBlobs": "s3://b"}, overwrite=False)
