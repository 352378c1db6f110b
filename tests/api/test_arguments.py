"""Arguments of the Python API that are not what they should be are refused, with a text that says so."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput, NotFound
from tests.support.places import fresh_memory
from tests.support.waiting import HANG

SCHEMA = "node City { name: String @key  size: I64? }"
ADD = "query add($n: String) { insert City { name: $n } }"
ALL = "query all() { match { $c: City } return { $c.name as name } order { name } }"
Call = Callable[[og.Graph], Any]


@pytest.fixture
def graph() -> og.Graph:
    return _made()


@pytest.fixture(scope="module")
def still() -> og.Graph:
    """A graph for calls that are refused, and that none of them changes."""
    made = _made()
    made.branches.create("review/x")
    made.mutate(ADD, {"n": "Oslo"}, branch="review/x")
    return made


def _made() -> og.Graph:
    made = og.init(fresh_memory(), schema=SCHEMA)
    made.load({"City": [{"name": "Bern"}]})
    return made


WRITES: dict[str, Callable[..., Any]] = {
    "mutate": lambda g, **said: g.mutate(ADD, {"n": "Rome"}, **said),
    "load": lambda g, **said: g.load({"City": [{"name": "Rome"}]}, **said),
    "merge": lambda g, **said: g.branches.merge("review/x", **said),
    "revert": lambda g, **said: g.revert(g.commits()[0], **said),
    "apply": lambda g, **said: g.schema.apply(SCHEMA.replace("I64?", "I64? note: String?"), **said),
    "optimize": lambda g, **said: g.optimize(**said),
}


class TestTexts:
    @pytest.mark.parametrize(("said", "value"), [("actor", 5), ("actor", "\ud800"), ("message", {"a": 1})])
    @pytest.mark.parametrize("write", WRITES)
    def test_write_with_message_or_actor_that_is_not_text_is_refused(
        self, still: og.Graph, write: str, said: str, value: Any
    ) -> None:
        with pytest.raises(InvalidInput, match=f"`{said}`( is|: expected)"):
            WRITES[write](still, **{said: value})
        assert len(still.commits()) == 2

    @pytest.mark.parametrize("write", ["mutate", "load"])
    def test_write_with_key_or_if_commit_that_is_not_text_is_refused(
        self, still: og.Graph, write: str
    ) -> None:
        for said in ("idempotency_key", "if_commit"):
            with pytest.raises(InvalidInput, match=f"`{said}`: expected a string, got int"):
                WRITES[write](still, **{said: 7})

    def test_open_with_actor_that_is_not_text_is_refused(self, tmp_path: Path) -> None:
        wrong: Any = 5
        graph = og.init(fresh_memory(), schema=SCHEMA)
        calls: list[Callable[[], Any]] = [
            lambda: og.init(str(tmp_path / "g.omni"), schema=SCHEMA, actor=wrong),
            lambda: og.open(graph.uri, actor=wrong),
            lambda: graph.acting_as(wrong),
            lambda: graph.branches.create("x", actor=wrong),
        ]
        for call in calls:
            with pytest.raises(InvalidInput, match="`actor`: expected a string, got int"):
                call()
        assert list(tmp_path.iterdir()) == []
        assert graph.branches.list() == ["main"]

    @pytest.mark.parametrize(
        "call",
        [
            lambda g, b: g.query(ALL, branch=b),
            lambda g, b: g.get("City", "Bern", branch=b),
            lambda g, b: g.commits(b),
            lambda g, b: g.mutate(ADD, {"n": "Rome"}, branch=b),
            lambda g, b: g.load({"City": [{"name": "Rome"}]}, branch=b),
            lambda g, b: g.branches.create(b),
            lambda g, b: g.branches.create("x", b),
            lambda g, b: g.branches.delete(b),
            lambda g, b: g.branches.merge("main", b),
            lambda g, b: g.feed(branch=b),
            lambda g, b: g.schema.source(b),
        ],
    )
    def test_call_with_branch_that_is_not_text_is_refused(
        self, still: og.Graph, call: Callable[[og.Graph, Any], Any]
    ) -> None:
        for branch in (None, 5, "\ud800"):
            with pytest.raises(InvalidInput, match=r"`branch`( is not valid|: expected a string)"):
                call(still, branch)

    def test_branch_list_with_invalid_page_is_refused(self, still: og.Graph) -> None:
        wrong: Any
        for wrong in (-1, "2", 1.5, True):
            with pytest.raises(InvalidInput, match="`limit` must be a non-negative integer"):
                still.branches.list(limit=wrong)
        for wrong in (5, "\ud800"):
            with pytest.raises(InvalidInput, match="`prefix`"):
                still.branches.list(prefix=wrong)
            with pytest.raises(InvalidInput, match="`after`"):
                still.branches.list(after=wrong)

    def test_query_that_is_neither_text_nor_path_is_refused(self, graph: og.Graph, tmp_path: Path) -> None:
        path = tmp_path / "all.gq"
        path.write_text(ALL, encoding="utf-8")
        assert graph.query(path).rows() == [{"name": "Bern"}]
        assert graph.explain(path) == graph.explain(ALL)
        (tmp_path / "add.gq").write_text(ADD, encoding="utf-8")
        assert graph.mutate(tmp_path / "add.gq", {"n": "Rome"}).affected_nodes == 1
        wrong: Any = None
        with pytest.raises(InvalidInput, match="a query is a string or a Path, not a value of None"):
            graph.query(wrong)
        # Servers pass on what anybody sends: a text must not open files.
        with pytest.raises(InvalidInput, match="parse error"):
            graph.query(str(path))


class TestStates:
    def test_query_at_commit_object_reads_its_state(self, graph: og.Graph) -> None:
        first = graph.commits()[0]
        graph.mutate(ADD, {"n": "Rome"})
        last = graph.commits()[0]
        assert len(graph.query(ALL, at=first)) == 1
        assert graph.snapshot(at=first).commit_id == first.id
        assert [change.id for change in graph.diff(first, last)] == ["Rome"]
        assert [change.id for change in graph.changes(last)] == ["Rome"]
        assert graph.branches.create("then", at=first).commit_id == first.id
        assert graph.branches.create("too", at=graph.snapshot()).commit_id == last.id
        assert graph.schema.source(at=first) == graph.schema.source(at=graph.snapshot()) == SCHEMA
        assert graph.export(io.StringIO(), at=first) == 1
        assert graph.revert(last).commit is not None
        assert graph.get("City", "Rome") is None

    @pytest.mark.parametrize(
        "call",
        [
            lambda g, at: g.query(ALL, at=at),
            lambda g, at: g.diff(at, "main"),
            lambda g, at: g.branches.create("x", at=at),
            lambda g, at: g.schema.source(at=at),
            lambda g, at: g.export(io.StringIO(), at=at),
        ],
    )
    def test_call_at_value_of_wrong_type_is_refused(
        self, still: og.Graph, call: Callable[[og.Graph, Any], Any]
    ) -> None:
        for at in (5.5, True, date(2020, 1, 1), object()):
            with pytest.raises(
                InvalidInput, match="a state is a commit, the name of a commit, a snapshot, a datetime or a"
            ):
                call(still, at)

    def test_diff_and_revert_of_none_are_refused(self, still: og.Graph) -> None:
        nothing: Any = None
        with pytest.raises(InvalidInput, match="a diff needs two states"):
            still.diff("main", nothing)
        with pytest.raises(InvalidInput, match="`commit_id`: expected a string, got None"):
            still.revert(nothing)

    def test_query_at_time_given_as_text_raises_with_a_hint(self, still: og.Graph) -> None:
        with pytest.raises(NotFound) as caught:
            still.query(ALL, at="2020-01-01")
        assert caught.value.message == "commit '2020-01-01' not found"
        assert caught.value.hint == "this is a time, not a commit id: pass it as a datetime"

    def test_query_on_misspelt_branch_suggests_the_nearest_name(self, still: og.Graph) -> None:
        calls: list[Call] = [
            lambda g: g.query(ALL, branch="reveiw/x"),
            lambda g: g.branches.delete("reveiw/x"),
            lambda g: g.diff("main", "reveiw/x"),
            lambda g: g.mutate(ADD, {"n": "Rome"}, branch="reveiw/x"),
        ]
        for call in calls:
            with pytest.raises(NotFound) as caught:
                call(still)
            assert caught.value.hint == "did you mean `review/x`?"

    def test_snapshot_is_readable_in_another_process(self, tmp_path: Path) -> None:
        graph = og.init(tmp_path / "g.omni", schema=SCHEMA, durability="os")
        graph.load({"City": [{"name": "Bern"}]})
        then = graph.snapshot()
        sent = pickle.loads(pickle.dumps(then))
        graph.load({"City": [{"name": "Rome"}]})
        assert (sent.branch, sent.commit, sent.catalog) == (then.branch, then.commit, then.catalog)
        assert sent.scan("node:City").num_rows == 1
        assert len(og.open(tmp_path / "g.omni").query(ALL, at=sent)) == 1


class TestOpening:
    @pytest.mark.parametrize("mode", ["ro", "R", "w", None])
    def test_open_with_unknown_mode_is_refused(self, still: og.Graph, mode: Any) -> None:
        with pytest.raises(InvalidInput, match=f"unknown mode {mode!r}") as caught:
            og.open(still.uri, mode=mode)
        assert caught.value.hint == "use one of rw, r"

    def test_open_with_unknown_durability_is_refused(self, tmp_path: Path) -> None:
        wrong: Any = "ful"
        for call in (og.init, og.open):
            given: dict[str, Any] = {"schema": SCHEMA} if call is og.init else {}
            with pytest.raises(InvalidInput, match="unknown durability 'ful'") as caught:
                call(str(tmp_path / "g.omni"), durability=wrong, **given)
            assert caught.value.hint == "use one of full, os"
        assert list(tmp_path.iterdir()) == []

    def test_open_accepts_path_objects(self, tmp_path: Path) -> None:
        made = og.init(tmp_path / "g.omni", schema=SCHEMA, durability="os", policy=None)
        assert og.open(tmp_path / "g.omni").uri == made.uri == str(tmp_path / "g.omni")

    @pytest.mark.parametrize("address", [None, 5, b"g.omni", Path("s3://bucket/g.omni")])
    def test_open_with_invalid_address_is_refused(self, address: Any) -> None:
        with pytest.raises(InvalidInput, match=r"expected a string or a path|is a URL in a path object"):
            og.open(address)

    @pytest.mark.parametrize("schema", ["nowhere.pg", Path("nowhere.txt")])
    def test_init_with_missing_schema_file_names_it(self, still: og.Graph, schema: str | Path) -> None:
        calls: list[Call] = [
            lambda _: og.init(fresh_memory(), schema=schema),
            lambda g: g.schema.plan(schema),
            lambda g: g.schema.apply(schema),
        ]
        for call in calls:
            with pytest.raises(NotFound, match=f"no such file: {schema}"):
                call(still)

    def test_init_with_schema_that_is_not_text_is_refused(self, still: og.Graph, tmp_path: Path) -> None:
        (tmp_path / "latin.pg").write_bytes(b"node Caf\xe9 { name: String @key }")
        for wrong, why in ((None, "a schema is a string"), (tmp_path, "is a directory"), (5, "a schema is")):
            given: Any = wrong
            with pytest.raises(InvalidInput, match=why):
                still.schema.plan(given)
        with pytest.raises(InvalidInput, match="is not UTF-8 text"):
            still.schema.plan(tmp_path / "latin.pg")


class TestTargets:
    def test_export_to_missing_folder_names_it(self, still: og.Graph, tmp_path: Path) -> None:
        for call in (still.export, still.baseline):
            with pytest.raises(NotFound, match=r"no such folder: .*nowhere"):
                call(tmp_path / "nowhere" / "all.ndjson")

    def test_export_and_baseline_to_invalid_target_are_refused(self, still: og.Graph) -> None:
        for target, why in (
            (io.BytesIO(), "got a binary stream"),
            (None, "a target is a path"),
            (5, "a target"),
        ):
            given: Any = target
            for call in (still.export, still.baseline):
                with pytest.raises(InvalidInput, match=why):
                    call(given)

    def test_filter_given_as_text_instead_of_list_is_refused(self, still: og.Graph) -> None:
        with pytest.raises(InvalidInput, match="`types` must be a list of names, got 'City'"):
            still.export(io.StringIO(), types="City")


class TestNumbers:
    @pytest.mark.parametrize("limit", [-1, 2.5, "3", 10**30])
    def test_commits_with_invalid_limit_is_refused(self, still: og.Graph, limit: Any) -> None:
        with pytest.raises(InvalidInput, match="`limit` must be a non-negative integer"):
            still.commits(limit=limit)
        assert still.commits(limit=0) == []

    def test_cleanup_with_invalid_retention_names_the_python_arguments(self, still: og.Graph) -> None:
        with pytest.raises(InvalidInput, match="cleanup needs `keep`, `older_than` or both"):
            still.cleanup()
        assert still.cleanup(older_than=timedelta(days=7)) == still.cleanup(older_than="7d")
        wrong: Any = 2.5
        with pytest.raises(InvalidInput, match=r"keep: expected a whole number, got 2\.5"):
            still.cleanup(keep=wrong)


FORKING = """
import asyncio, os, signal, sys, warnings
import omnigraph as og

warnings.simplefilter("ignore")
graph = og.init(sys.argv[1], schema=sys.argv[2], durability="os")
add = 'query add() { insert City { name: "Bern" } }'
graph.mutate(add)
asynchronous = og.aio.AsyncGraph(graph)
asyncio.run(asynchronous.commits())
child = os.fork()
signal.alarm(30)
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
refused = 0
for call in (lambda: graph.mutate(add), graph.commits, lambda: asyncio.run(asynchronous.commits())):
    try:
        call()
    except og.errors.InvalidInput as error:
        refused += "opened before this process was forked" in error.message and "spawn" in error.hint
os._exit(0 if refused == 3 else 1)
"""


class TestProcesses:
    def test_call_after_fork_is_refused(self) -> None:
        # In a process of its own: a large one may be refused to fork.
        done = subprocess.run(
            [sys.executable, "-c", FORKING, fresh_memory(), SCHEMA],
            timeout=HANG,
            check=False,
            capture_output=True,
            text=True,
            env=os.environ,
        )
        assert done.returncode == 0, done.stderr

    def test_call_after_close_is_refused(self, graph: og.Graph) -> None:
        graph.close()
        graph.close()
        calls: list[Call] = [
            lambda g: g.query(ALL),
            lambda g: g.get("City", "Bern"),
            lambda g: g.commits(),
            lambda g: g.changes("x"),
            lambda g: g.diff("main", "main"),
            lambda g: g.schema.source(),
            lambda g: g.branches.list(),
            lambda g: g.mutate(ADD, {"n": "Rome"}),
            lambda g: g.acting_as("ana").commits(),
        ]
        for call in calls:
            with pytest.raises(InvalidInput, match="the graph is closed") as caught:
                call(graph)
            assert caught.value.hint == "open it again"
