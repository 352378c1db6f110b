"""The contract of the Python API: opening, reading, changing, and what errors carry."""

from __future__ import annotations

import html
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow as pa
import pytest

import omnigraph as og
from tests.support.places import fresh_memory, together

SCHEMA = """\
node Person {
  name: String @key
  age: I32?
  born: Date?
  serial: U64?
  @range(age, 0..150)
}

node Firm {
  slug: String @key
}

edge Knows: Person -> Person {
  since: Date?
}

edge WorksAt: Person -> Firm
"""
ADD = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
ALL = "query all() { match { $p: Person } return { $p.name as name, $p.age as age } order { name } }"
COUNT = "query people() { match { $p: Person } return { count($p) as n } }"
OLDER = (
    "query older($than: I32) { match { $p: Person  $p.age > $than } return { $p.name } order { $p.name } }"
)


@pytest.fixture
def graph() -> og.Graph:
    return og.init(fresh_memory(), schema=SCHEMA, actor="ana")


def add(graph: og.Graph, name: str, age: int | None = None, **options: Any) -> str:
    """Add a person; gives the commit."""
    receipt = graph.mutate(ADD, {"n": name, "a": age}, **options)
    assert receipt.commit is not None
    return receipt.commit.id


def names(graph: og.Graph, **state: Any) -> list[str]:
    return [row["name"] for row in graph.query(ALL, **state)]


class TestOpening:
    def test_init_accepts_schema_as_text_or_path(self, tmp_path: Path) -> None:
        path = tmp_path / "team.pg"
        path.write_text(SCHEMA, encoding="utf-8")
        forms: tuple[str | Path, ...] = (SCHEMA, path, str(path))
        for number, schema in enumerate(forms):
            graph = og.init(str(tmp_path / f"{number}.omni"), schema=schema, durability="os")
            assert graph.schema.source() == SCHEMA

    def test_init_of_existing_graph_raises_conflict(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "g.omni")
        og.init(uri, schema=SCHEMA, durability="os")
        with pytest.raises(og.errors.Conflict) as caught:
            og.init(uri, schema=SCHEMA, durability="os")
        assert caught.value.code == "conflict"

    def test_open_accepts_path_and_file_address(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "g.omni")
        add(og.init(uri, schema=SCHEMA, durability="os"), "Ana")
        assert names(og.open(uri)) == names(og.open(f"file://{uri}")) == ["Ana"]
        assert og.open(uri).uri == og.open(f"file://{uri}").uri

    def test_open_without_graph_raises_not_found(self, tmp_path: Path) -> None:
        with pytest.raises(og.errors.NotFound) as caught:
            og.open(str(tmp_path / "none.omni"))
        assert caught.value.hint == "create one with init"

    def test_open_in_read_mode_refuses_writes(self, graph: og.Graph) -> None:
        add(graph, "Ana")
        reader = og.open(graph.uri, mode="r")
        assert names(reader) == ["Ana"]
        for write in (
            lambda: add(reader, "Bo"),
            lambda: reader.load([]),
            lambda: reader.branches.create("x"),
            lambda: reader.branches.delete("x"),
        ):
            with pytest.raises(og.errors.PermissionDenied) as caught:
                write()
            assert caught.value.hint == "open it with mode='rw'"
        assert len(graph.commits()) == 2

    def test_query_in_read_mode_sees_later_commits(self, graph: og.Graph) -> None:
        reader = og.open(graph.uri, mode="r")
        assert names(reader) == []
        add(graph, "Ana")
        assert names(reader) == ["Ana"]

    def test_with_statement_closes_the_handle_and_keeps_commits(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "g.omni")
        with og.init(uri, schema=SCHEMA, durability="os") as made:
            add(made, "Ana")
        with og.open(uri, actor="bo") as opened:
            assert (names(opened), opened.actor, repr(opened)) == (
                ["Ana"],
                "bo",
                f"LocalGraph({opened.uri!r})",
            )

    def test_pickle_of_a_handle_reopens_the_graph(self, tmp_path: Path) -> None:
        graph = og.init(str(tmp_path / "g.omni"), schema=SCHEMA, actor="ana", durability="os")
        pickled = pickle.dumps(graph)
        add(graph, "Ana", 30)
        twin = pickle.loads(pickled)
        assert (twin.uri, twin.actor, names(twin)) == (graph.uri, "ana", ["Ana"])
        add(twin, "Bo")
        assert names(graph) == ["Ana", "Bo"]
        # What it has read is no part of it.
        assert len(pickle.dumps(graph)) == len(pickled) < 1_000

    def test_pickle_of_a_read_mode_handle_keeps_the_mode(self, graph: og.Graph) -> None:
        twin = pickle.loads(pickle.dumps(og.open(graph.uri, mode="r")))
        with pytest.raises(og.errors.PermissionDenied):
            add(twin, "Bo")


class TestSharing:
    def test_query_and_mutate_in_threads_on_one_handle(self, graph: og.Graph) -> None:
        def write(start: int) -> list[int]:
            for number in range(start, start + 5):
                add(graph, f"p{number:02}", number)
            return []

        def read() -> list[int]:
            found = []
            for _ in range(10):
                result = graph.query(ALL)
                # One state: every row that is there is whole.
                assert [row["name"] for row in result] == [f"p{row['age']:02}" for row in result]
                found.append(len(result))
            return found

        outcomes = together([*(lambda n=n: write(n) for n in range(0, 20, 5)), *[read] * 4])
        assert [item for item in outcomes if isinstance(item, Exception)] == []
        for counts in outcomes[4:]:
            assert isinstance(counts, list)
            assert counts == sorted(counts)
        assert names(graph) == [f"p{number:02}" for number in range(20)]
        assert len(graph.commits(limit=None)) == 21


class TestQuery:
    def test_query_parameters_are_passed_by_name(self, graph: og.Graph) -> None:
        for name, age in (("Ana", 30), ("Bo", 40), ("Cid", None)):
            add(graph, name, age)
        assert graph.query(OLDER, {"than": 35}).rows() == [{"p.name": "Bo"}]
        assert graph.query(OLDER, params={"than": 1}).rows() == [{"p.name": "Ana"}, {"p.name": "Bo"}]

    def test_query_selects_one_of_several_by_name(self, graph: og.Graph) -> None:
        add(graph, "Ana", 30)
        text = f"{ALL}\n{COUNT}"
        assert graph.query(text, name="people").scalar() == 1
        assert graph.query(text, name="all").query_name == "all"
        with pytest.raises(og.errors.InvalidInput, match="several queries: all, people"):
            graph.query(text)
        with pytest.raises(og.errors.InvalidInput, match="did you mean `people`"):
            graph.query(text, name="peple")

    def test_query_on_branch_reads_its_rows(self, graph: og.Graph) -> None:
        add(graph, "Ana")
        graph.branches.create("review/x")
        added = add(graph, "Bo", branch="review/x")
        assert (names(graph), names(graph, branch="review/x")) == (["Ana"], ["Ana", "Bo"])
        result = graph.query(ALL, branch="review/x")
        assert (result.commit_id, result.branch, result.snapshot) == (added, "review/x", None)

    def test_query_at_commit_snapshot_or_time_reads_that_state(self, graph: og.Graph) -> None:
        first = add(graph, "Ana")
        held = graph.snapshot()
        moment = graph.commit(first).created_at
        while datetime.now(UTC) - moment < timedelta(milliseconds=2):
            pass
        second = add(graph, "Bo")
        assert (held.commit_id, graph.snapshot().commit_id) == (first, second)
        assert names(graph, at=first) == names(graph, at=held) == names(graph, at=moment) == ["Ana"]
        assert names(graph, at=datetime.now(UTC)) == names(graph) == ["Ana", "Bo"]
        result = graph.query(ALL, at=moment)
        assert (result.commit_id, result.branch, result.snapshot) == (first, None, first)

    def test_query_at_unknown_state_raises_not_found(self, graph: og.Graph) -> None:
        with pytest.raises(og.errors.NotFound, match="did not exist yet"):
            graph.query(ALL, at=datetime(1999, 12, 31, tzinfo=UTC))
        with pytest.raises(og.errors.NotFound) as caught:
            graph.query(ALL, at="01AAAAAAAAAAAAAAAAAAAAAAAA")
        assert caught.value.details == {"commit_id": "01AAAAAAAAAAAAAAAAAAAAAAAA"}
        with pytest.raises(og.errors.NotFound) as caught:
            graph.query(ALL, branch="mian")
        assert caught.value.details == {"branch": "mian", "branches": ["main"]}

    def test_query_of_a_mutation_and_mutate_of_a_query_are_refused(self, graph: og.Graph) -> None:
        with pytest.raises(og.errors.InvalidInput) as caught:
            graph.query(ADD, {"n": "Ana"})
        assert caught.value.hint == "run it with `mutate`"
        with pytest.raises(og.errors.InvalidInput) as caught:
            graph.mutate(ALL)
        assert caught.value.hint == "run it with `query`"

    def test_explain_shows_state_scans_and_expansions(self, graph: og.Graph) -> None:
        text = "query of($n: String) { match { $p: Person { name: $n }  $p knows $q } return { $q.name } limit 3 }"
        plan = graph.explain(text, {"n": "Ana"})
        assert plan.startswith(f"read of at commit {graph.snapshot().commit_id}\n")
        for part in ("scan $p: Person", "key lookup in node:Person", "expand $p -[Knows]-> $q", "limit 3"):
            assert part in plan
        earlier = graph.snapshot().commit_id
        add(graph, "Ana")
        assert graph.explain(text, {"n": "Ana"}, at=earlier) == plan

    def test_query_with_small_cache_returns_the_same_rows(self, graph: og.Graph) -> None:
        graph.load({"Person": [{"name": f"p{n:03}", "age": n % 90} for n in range(500)]})
        assert og.open(graph.uri, cache_bytes=0).query(ALL).table == graph.query(ALL).table


class TestResult:
    @pytest.fixture
    def result(self, graph: og.Graph) -> og.Result:
        people: list[dict[str, Any]] = [
            {"name": "Ana <3", "age": 30, "born": "1990-02-03", "serial": 2**63},
            {"name": "Bo"},
        ]
        graph.load({"Person": people})
        text = "query q() { match { $p: Person } return { $p.name, $p.age, $p.born, $p.serial } order { $p.name } }"
        return graph.query(text)

    def test_result_table_has_declared_types(self, result: og.Result) -> None:
        assert result.table.schema.types == [pa.string(), pa.int32(), pa.date32(), pa.uint64()]
        assert result.columns == result.table.column_names == ["p.name", "p.age", "p.born", "p.serial"]

    def test_result_rows_are_json_values_in_projection_order(self, result: og.Result) -> None:
        ana = {"p.name": "Ana <3", "p.age": 30, "p.born": "1990-02-03", "p.serial": 2**63}
        bo = dict.fromkeys(ana, None) | {"p.name": "Bo"}
        assert result.rows() == list(result) == [ana, bo]
        assert list(result.rows()[0]) == result.columns
        assert len(result) == 2

    def test_result_data_frames_have_the_same_values(self, result: og.Result) -> None:
        assert isinstance(result.to_pandas(), pandas.DataFrame)
        assert result.to_pandas()["p.name"].tolist() == ["Ana <3", "Bo"]
        assert isinstance(result.to_polars(), polars.DataFrame)
        assert result.to_polars().to_dicts() == result.table.to_pylist()

    def test_result_data_frame_keeps_integers_and_booleans_with_nulls(self) -> None:
        schema = "node Person { name: String @key  age: I32?  serial: U64?  old: Bool? }"
        text = (
            "query q() { match { $p: Person } return "
            "{ $p.name as name, $p.age as age, $p.serial as serial, $p.old as old } order { name } }"
        )
        graph, other = og.init(fresh_memory(), schema=schema), og.init(fresh_memory(), schema=schema)
        graph.load({"Person": [{"name": "Ana", "age": 30, "serial": 2**53 + 1, "old": True}, {"name": "Bo"}]})
        frame = graph.query(text).to_pandas()
        assert [str(kind) for kind in frame.dtypes.iloc[1:]] == ["Int32", "UInt64", "boolean"]
        assert frame["serial"].tolist() == [2**53 + 1, pandas.NA]
        assert frame["old"].tolist() == [True, pandas.NA]
        # Without nulls they are plain, and what came out goes back in.
        assert [str(kind) for kind in graph.query(COUNT).to_pandas().dtypes] == ["int64"]
        other.load({"Person": frame})
        assert other.query(text).rows() == graph.query(text).rows()

    def test_result_supports_the_arrow_stream_interface(self, result: og.Result) -> None:
        assert pa.table(result) == result.table
        assert polars.DataFrame(result).to_dicts() == result.table.to_pylist()
        assert pa.RecordBatchReader.from_stream(result).read_all() == result.table

    def test_result_html_escapes_text(self, result: og.Result) -> None:
        shown = result._repr_html_()
        right = '<td style="text-align:right">'
        assert (
            f"<td>{html.escape('Ana <3')}</td>{right}30</td><td>1990-02-03</td>{right}{2**63}</td>" in shown
        )
        assert f"<td>Bo</td>{right}</td><td></td>{right}</td>" in shown
        assert "<th>p.serial</th>" in shown
        assert "<p>2 rows</p>" in shown

    def test_result_html_cuts_long_texts(self, graph: og.Graph) -> None:
        graph.load({"Firm": [{"slug": "x" * 3_000}]})
        shown = graph.query("query f() { match { $f: Firm } return { $f.slug } }")._repr_html_()
        assert f'title="{"x" * 2_000}">{"x" * 199}…</td>' in shown

    def test_long_result_shows_its_first_rows_only(self, graph: og.Graph) -> None:
        graph.load({"Firm": [{"slug": f"f{n:04}"} for n in range(1_234)]})
        firms = graph.query("query f() { match { $f: Firm } return { $f.slug } order { $f.slug } }")
        assert firms._repr_html_().count("<tr>") == 21
        assert "<p>20 of 1,234 rows</p>" in firms._repr_html_()
        lines = repr(firms).split("\n")
        assert (lines[0], lines[2], lines[-2:]) == ("f.slug", "f0000", ["f0019", "20 of 1,234 rows"])

    def test_result_prints_as_a_table_that_fits_the_terminal(
        self, result: og.Result, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert repr(result).split("\n") == [
            "p.name | p.age | p.born     |            p.serial",
            "-------+-------+------------+--------------------",
            "Ana <3 |    30 | 1990-02-03 | 9223372036854775808",
            "Bo     |  null | null       |                null",
            "2 rows",
        ]
        for columns in range(20, 60):
            monkeypatch.setenv("COLUMNS", str(columns))
            assert max(map(len, repr(result).split("\n"))) <= columns
        monkeypatch.setenv("COLUMNS", "24")
        assert repr(result).split("\n")[2] == "Ana <3 | … | 9223372036…"

    def test_printed_result_escapes_control_characters(self, graph: og.Graph) -> None:
        graph.load({"Firm": [{"slug": "a\x1b[2J\nb"}]})
        shown = repr(graph.query("query f() { match { $f: Firm } return { $f.slug } }"))
        assert shown.split("\n")[2] == "a\\x1b[2J\\nb"

    def test_result_index_selects_a_row_a_column_or_rows(self, result: og.Result) -> None:
        assert [result[0], result[1]] == [result[-2], result[-1]] == result.rows() == result.to_dicts()
        assert result["p.born"] == ["1990-02-03", None]
        assert result[1:].rows() == result.rows()[1:]
        assert result[::-1].rows() == result.rows()[::-1]
        assert (len(result[5:]), len(result[1:0]), len(result.head(1)), len(result.head(9))) == (0, 0, 1, 2)
        assert result.head(1).commit_id == result.commit_id
        with pytest.raises(KeyError, match=r"no column 'age'; the columns are p\.name, p\.age"):
            result["age"]
        for place in (2, -3):
            with pytest.raises(IndexError, match="the result has 2"):
                result[place]

    def test_result_scalar_returns_the_single_value(self, graph: og.Graph, result: og.Result) -> None:
        assert graph.query(COUNT).scalar() == 2
        with pytest.raises(ValueError, match="2 rows and 4 columns"):
            result.scalar()

    def test_result_names_its_commit(self, graph: og.Graph, result: og.Result) -> None:
        assert result.commit_id == graph.commits()[0].id
        add(graph, "Cid")
        assert result.commit_id == graph.commits()[1].id
        assert result.to_json()["graph_commit_id"] == result.commit_id


class TestGet:
    def test_get_node_returns_id_and_properties(self, graph: og.Graph) -> None:
        graph.load({"Person": [{"name": "Ana", "born": "1990-02-03"}]})
        assert graph.get("Person", "Ana") == {
            "id": "Ana", "name": "Ana", "age": None, "born": "1990-02-03", "serial": None,
        }  # fmt: skip

    def test_get_edge_returns_its_endpoints(self, graph: og.Graph) -> None:
        people = [{"name": "Ana"}, {"name": "Bo"}]
        knows = [{"id": "e1", "from": "Ana", "to": "Bo", "since": "2020-01-01"}]
        graph.load({"Person": people, "Knows": knows})
        assert graph.get("Knows", "e1") == {"id": "e1", "from": "Ana", "to": "Bo", "since": "2020-01-01"}

    def test_get_missing_id_returns_none_and_unknown_type_raises(self, graph: og.Graph) -> None:
        assert graph.get("Person", "nobody") is None
        with pytest.raises(og.errors.NotFound, match="did you mean `Person`") as caught:
            graph.get("Persn", "Ana")
        assert caught.value.details == {"type": "Persn"}

    def test_get_by_integer_key_returns_the_node(self) -> None:
        graph = og.init(fresh_memory(), schema="node Order { number: I32 @key }")
        graph.load({"Order": [{"number": 10248}]})
        assert graph.get("Order", 10248) == graph.get("Order", "10248") == {"id": "10248", "number": 10248}
        with pytest.raises(og.errors.InvalidInput, match="expected an id as text, got float"):
            graph.get("Order", 1.5)  # type: ignore[arg-type]

    def test_get_on_branch_and_at_commit_reads_that_state(self, graph: og.Graph) -> None:
        first = add(graph, "Ana", 30)
        graph.branches.create("review")
        add(graph, "Ana", 31, branch="review")
        graph.mutate('query gone() { delete Person where name = "Ana" }')
        ages = [graph.get("Person", "Ana", **state) for state in ({}, {"branch": "review"}, {"at": first})]
        assert [None if found is None else found["age"] for found in ages] == [None, 31, 30]


class TestMutate:
    def test_mutate_receipt_has_commit_and_affected_rows(self, graph: og.Graph) -> None:
        before = graph.commits()[0]
        receipt = graph.mutate(ADD, {"n": "Ana"}, message="hello", actor="bo")
        commit = receipt.commit
        assert commit is not None
        assert receipt.affected == {"Person": {"inserted": 1, "updated": 0, "deleted": 0}}
        assert (receipt.affected_nodes, receipt.affected_edges, receipt.query_name) == (1, 0, "add")
        assert (commit.parents, commit.branch, commit.actor) == ((before.id,), "main", "bo")
        assert (commit.operation, commit.message) == ("mutate", "hello")
        assert graph.commits(actor="bo") == [commit] == graph.commits(limit=1)
        assert graph.commit(commit.id) == commit

    def test_mutate_without_match_makes_no_commit(self, graph: og.Graph) -> None:
        assert graph.mutate('query gone() { delete Person where name = "Ana" }').commit is None
        assert len(graph.commits()) == 1

    def test_mutate_if_commit_with_other_head_succeeds_after_reading_again(self, graph: og.Graph) -> None:
        seen = add(graph, "Ana", 30)
        theirs = add(graph, "Ana", 31)
        with pytest.raises(og.errors.PreconditionFailed) as caught:
            add(graph, "Ana", 29, if_commit=seen)
        assert caught.value.code == "precondition_failed"
        assert caught.value.details == {"expected": seen, "actual": theirs}
        again = graph.query(ALL)
        add(graph, "Ana", again.rows()[0]["age"] + 1, if_commit=again.commit_id)
        assert graph.query(ALL).rows() == [{"name": "Ana", "age": 32}]

    def test_mutate_with_repeated_idempotency_key_commits_once(self, graph: og.Graph) -> None:
        first = graph.mutate(ADD, {"n": "Ana"}, idempotency_key="k1")
        again = graph.mutate(ADD, {"n": "Ana"}, idempotency_key="k1")
        assert (first.replayed, again.replayed, again.commit) == (False, True, first.commit)
        assert len(graph.commits()) == 2


class TestErrors:
    def test_query_with_unknown_type_reports_line_and_column(self, graph: og.Graph) -> None:
        with pytest.raises(og.errors.InvalidInput) as caught:
            graph.query("query q() {\n  match { $p: Persn }\n  return { $p.name }\n}")
        (found,) = caught.value.details["diagnostics"]
        assert (found["code"], found["line"], found["column"]) == ("T1", 2, 15)
        assert found["source_line"] == "match { $p: Persn }"
        assert "did you mean `Person`?" in str(caught.value)

    def test_query_without_required_parameter_names_it(self, graph: og.Graph) -> None:
        with pytest.raises(og.OmnigraphError) as caught:
            graph.query(OLDER)
        error = caught.value
        assert (error.code, error.details) == ("invalid_input", {"parameter": "than", "type": "I32"})
        assert error.hint == "pass a value of type I32 for `$than`"

    def test_mutate_with_violations_lists_all_and_writes_nothing(self, graph: og.Graph) -> None:
        text = (
            'query bad() { insert Person { name: "Ana", age: 200 }'
            ' insert Person { name: "Bo", age: -1 }  insert Knows { from: "Ana", to: "Zed" } }'
        )
        with pytest.raises(og.errors.ConstraintViolation) as caught:
            graph.mutate(text)
        assert caught.value.code == "constraint_violation"
        assert caught.value.details["violations"] == len(caught.value.violations) >= 2
        assert names(graph) == []
        assert len(graph.commits()) == 1


def test_load_of_many_rows_builds_id_and_endpoint_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "omnigraph.load.spool.LoadLimits.__init__.__defaults__", (2, 1 << 20, 65_536, 1 << 28)
    )
    g = og.init(fresh_memory(), schema="node City { name: String @key } edge Near: City -> City")
    g.load({"City": [{"name": name} for name in "abcd"], "Near": [{"from": "a", "to": "b"}]})
    assert sorted((item.type, item.property, item.rows, item.covered) for item in g.indexes()) == [
        ("City", "id", 4, 4),
        ("Near", "dst", 1, 1),
        ("Near", "id", 1, 1),
        ("Near", "src", 1, 1),
    ]


def test_schema_plan_of_unsupported_change_reports_it_and_changes_nothing(tmp_path: Path) -> None:
    g = og.init(fresh_memory(), schema="node City { name: String @key }")
    wanted = tmp_path / "wanted.pg"
    wanted.write_text("node City { name: String @key  mayor: String }", encoding="utf-8")
    plan = g.schema.plan(wanted)
    assert not plan.supported
    assert plan.refusal is not None
    assert plan.refusal.startswith("[OG-MF-103]")
    assert g.schema.source() == "node City { name: String @key }"
