"""`omnigraph load` and `ingest`: inputs, output, errors and progress."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from omnigraph.cli.render import progress_bar
from tests.cli.graphs import add_people, make_graph
from tests.cli.running import run, run_without, write

PEOPLE = (
    '{"type": "Person", "data": {"name": "Ann", "age": 30}}\n{"type": "Person", "data": {"name": "Bob"}}\n'
)
RECORDS = PEOPLE + '{"edge": "Knows", "from": "Ann", "to": "Bob"}\n'
SPOILT = (
    '{"type": "Person", "data": {"name": "Cid", "age": "old"}}\n{"type": "Person", "data": {"name": "Dan"}}\n'
)
TARGET = "omnigraph load → g.omni (direct, local)\n"


@pytest.fixture(autouse=True)
def genesis(folder: Path) -> str:
    write(folder / "d.jsonl", RECORDS)
    write(folder / "spoilt.jsonl", SPOILT)
    return make_graph("g.omni")


class Interrupting(io.RawIOBase):
    """A file of which the reader is interrupted."""

    def readable(self) -> bool:
        return True

    def readinto(self, _: object) -> int:
        raise KeyboardInterrupt


def test_load_interrupted_reports_it() -> None:
    outcome = run(
        "load", "--data", "-", "--mode", "append", "g.omni", stdin=io.BufferedReader(Interrupting())
    )
    assert (outcome.code, outcome.stdout, outcome.stderr) == (130, "", f"{TARGET}interrupted\n")
    assert commits() == 1


def test_load_from_closed_stdin_is_refused() -> None:
    found = run_without("stdin", "load", "--data", "-", "--mode", "overwrite", "g.omni")
    assert found == (1, "error: cannot read stdin: it is closed\n")


def names(branch: str = "main") -> list[str]:
    lines = run("export", "g.omni", "--branch", branch, "--type", "Person").stdout.splitlines()
    return [json.loads(line)["data"]["name"] for line in lines]


def commits() -> int:
    return len(run("commit", "list", "g.omni").stdout.splitlines())


class TestDryRunsAndReports:
    def test_load_dry_run_prints_the_result_and_commits_nothing(self) -> None:
        outcome = run("load", "--data", "d.jsonl", "--mode", "append", "--dry-run", "g.omni")
        assert outcome.stdout == (
            "would load g.omni on branch main with append: 3 entities across 1 node types and 1 edge types\n"
        )
        assert (outcome.code, names(), commits()) == (0, [], 1)

    def test_load_dry_run_of_invalid_records_fails(self) -> None:
        outcome = run("load", "--data", "spoilt.jsonl", "--mode", "append", "--dry-run", "g.omni")
        assert (outcome.code, names()) == (1, [])
        assert "line 1" in outcome.stderr

    def test_load_dry_run_creates_no_branch(self) -> None:
        outcome = run(
            "load", "--data", "d.jsonl", "--mode", "merge", "--dry-run", "--json",
            "--branch", "b", "--from", "main", "g.omni",
        )  # fmt: skip
        document = json.loads(outcome.stdout)
        assert (document["dry_run"], document["branch"], document["branch_created"]) == (True, "b", False)
        assert document["commit"] is None
        assert "b" not in run("branch", "list", "g.omni").stdout.split()

    def test_load_report_prints_rows_and_times(self) -> None:
        outcome = run("load", "--data", "d.jsonl", "--mode", "append", "--report", "g.omni")
        first, head, people, edges, total, times = outcome.stdout.splitlines()
        assert first.startswith("loaded g.omni")
        assert head.split() == ["type", "loaded", "inserted", "updated", "deleted"]
        assert people.split() == ["Person", "2", "2", "0", "0"]
        assert edges.split() == ["Knows", "1", "1", "0", "0"]
        assert total.split()[:5] == ["total", "3", "rows,", "0", "rejected,"]
        assert times.startswith("time")

    def test_load_report_is_a_member_of_the_json_document(self) -> None:
        outcome = run("load", "--data", "d.jsonl", "--mode", "append", "--report", "--json", "g.omni")
        report = json.loads(outcome.stdout)["report"]
        assert report["rows"] == {"nodes": {"Person": 2}, "edges": {"Knows": 1}, "total": 3}
        assert report["bytes"] == len(RECORDS)


class TestWhatIsLoaded:
    def test_load_of_records_makes_one_commit(self) -> None:
        outcome = run("load", "--data", "d.jsonl", "--mode", "append", "g.omni")
        assert (outcome.code, outcome.stderr) == (0, TARGET)
        assert outcome.stdout == (
            "loaded g.omni on branch main with append: 3 entities across 1 node types and 1 edge types\n"
        )
        assert (names(), commits()) == (["Ann", "Bob"], 2)

    def test_load_of_an_export_gives_the_same_rows(self) -> None:
        run("load", "--data", "d.jsonl", "--mode", "append", "g.omni")
        exported = run("export", "g.omni").stdout
        run("init", "--schema", "people.pg", "again.omni")
        write(Path("all.jsonl"), exported)
        assert run("load", "--data", "all.jsonl", "--mode", "append", "again.omni").code == 0
        assert run("export", "again.omni").stdout == exported

    def test_load_mode_append_merge_and_overwrite(self) -> None:
        add_people("g.omni", "Ann", "Zed")
        write(Path("p.jsonl"), PEOPLE)
        taken = run("load", "--data", "p.jsonl", "--mode", "append", "g.omni")
        assert taken.code == 1
        assert taken.stderr == f"{TARGET}error: p.jsonl: line 1: node type 'Person' already has id 'Ann'\n"
        assert run("load", "--data", "p.jsonl", "--mode", "merge", "g.omni").code == 0
        assert names() == ["Ann", "Bob", "Zed"]
        assert run("load", "--data", "p.jsonl", "--mode", "overwrite", "g.omni").code == 0
        assert names() == ["Ann", "Bob"]

    def test_load_from_stdin(self) -> None:
        assert run("load", "--data", "-", "--mode", "append", "g.omni", stdin=RECORDS).code == 0
        assert names() == ["Ann", "Bob"]

    def test_load_of_tables_by_type(self) -> None:
        write(Path("p.csv"), "name,age\nEve,3\nFay,\n")
        write(Path("k.csv"), "from,to\nEve,Fay\n")
        outcome = run(
            "load", "--data", "Person=p.csv", "--data", "edge:Knows=k.csv", "--mode", "merge", "g.omni"
        )
        assert outcome.stdout.endswith("3 entities across 1 node types and 1 edge types\n")
        assert names() == ["Eve", "Fay"]

    def test_load_from_option_creates_the_missing_branch(self) -> None:
        missing = run("load", "--data", "d.jsonl", "--mode", "append", "--branch", "dev", "g.omni")
        assert missing.code == 1
        assert "branch 'dev' not found" in missing.stderr
        made = run(
            "load", "--data", "d.jsonl", "--mode", "append", "--branch", "dev", "--from", "main", "g.omni"
        )
        assert made.stdout.splitlines()[1:] == ["branch dev created from main"]
        assert (names(), names("dev")) == ([], ["Ann", "Bob"])
        again = run(
            "load", "--data", "d.jsonl", "--mode", "merge", "--branch", "dev", "--from", "main", "g.omni"
        )
        assert len(again.stdout.splitlines()) == 1

    def test_load_merge_reports_superseded_records(self) -> None:
        knows = '{"edge": "Knows", "from": "Ann", "to": "Bob", "data": {"id": "k"}}\n'
        write(Path("twice.jsonl"), PEOPLE + knows * 3)
        outcome = run("load", "--data", "twice.jsonl", "--mode", "merge", "g.omni", "--quiet")
        assert outcome.stderr == "2 records superseded by a later record with the same id\n"


class TestActors:
    def test_load_as_actor_records_the_actor(self) -> None:
        run("load", "--data", "d.jsonl", "--mode", "append", "--as", "ana", "g.omni")
        assert run("commit", "list", "g.omni").stdout.splitlines()[0].endswith("actor=ana")
        outcome = run("ingest", "--data", "d.jsonl", "--as", "bo", "g.omni")
        assert outcome.stdout.endswith("actor_id: bo\n")


class TestDocuments:
    def test_load_json_document_has_the_documented_members(self) -> None:
        outcome = run("load", "--data", "d.jsonl", "--mode", "append", "--json", "g.omni")
        found = json.loads(outcome.stdout)
        assert found.pop("commit")["graph_manifest_version"] == 2
        assert found == {
            "uri": "g.omni",
            "branch": "main",
            "branch_created": False,
            "mode": "append",
            "nodes": [{"name": "Person", "entities_loaded": 2}],
            "edges": [{"name": "Knows", "entities_loaded": 1}],
            "total_entities": 3,
        }

    def test_load_json_document_has_the_base_branch(self) -> None:
        found = json.loads(
            run(
                *("load", "--data", "d.jsonl", "--mode", "append", "--branch", " dev ", "--from", "main"),
                *("--message", "first", "--json", "g.omni"),
            ).stdout
        )
        assert (found["branch"], found["base_branch"], found["branch_created"]) == ("dev", "main", True)
        assert found["commit"]["graph_branch"] == "dev"


class TestRejects:
    def test_load_with_rejects_skips_and_writes_invalid_records(self) -> None:
        arguments = ("load", "--data", "spoilt.jsonl", "--mode", "append", "--rejects", "bad.jsonl", "g.omni")
        outcome = run(*arguments)
        assert outcome.code == 0
        assert outcome.stderr == f"{TARGET}warning: 1 record rejected: see bad.jsonl\n"
        (line,) = Path("bad.jsonl").read_text().splitlines()
        assert (json.loads(line)["source"], json.loads(line)["line"]) == ("spoilt.jsonl", 1)
        assert names() == ["Dan"]
        write(Path("spoilt.jsonl"), SPOILT.replace("Dan", "Fay"))
        assert json.loads(run(*arguments, "--json").stdout)["rejected"] == 1

    def test_load_without_rejects_fails_at_invalid_records(self) -> None:
        outcome = run("load", "--data", "spoilt.jsonl", "--mode", "append", "g.omni")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr == (
            f"{TARGET}error: spoilt.jsonl: Person line 1, property 'age': expected I32, got \"old\"\n"
        )
        assert commits() == 1

    def test_load_with_rejects_in_missing_folder_is_refused_before_loading(self) -> None:
        outcome = run(
            "load", "--data", "d.jsonl", "--mode", "append", "--rejects", "nowhere/bad.jsonl", "g.omni"
        )
        assert (outcome.code, outcome.stderr) == (1, "error: no such folder: nowhere\n")
        assert commits() == 1


class TestRefusals:
    def test_load_with_violations_lists_the_first_with_their_lines(self) -> None:
        lines = (f'{{"edge": "Knows", "from": "Ann", "to": "nobody {number}"}}\n' for number in range(12))
        write(Path("edges.jsonl"), PEOPLE + "".join(lines))
        outcome = run("load", "--data", "edges.jsonl", "--mode", "append", "g.omni", "--quiet")
        first, *_, last, more = outcome.stderr.splitlines()
        assert first == "error: edges.jsonl: Knows line 3: dst 'nobody 0' not found in Person"
        assert last == "error: edges.jsonl: Knows line 12: dst 'nobody 9' not found in Person"
        assert more == "error: and 2 more"
        assert commits() == 1

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--data", "d.jsonl"),
            ("--mode", "append"),
            ("--data", "d.jsonl", "--mode", "replace"),
            ("--data", "d.jsonl", "--data", "d.jsonl", "--mode", "append"),
            ("--data", "d.jsonl", "--data", "Person=p.csv", "--mode", "append"),
            ("--data", "Person=p.csv", "--data", "Person=q.csv", "--mode", "append"),
            ("--data", "Person=-", "--mode", "append"),
        ],
    )
    def test_load_with_ambiguous_arguments_is_a_usage_error(self, arguments: tuple[str, ...]) -> None:
        assert run("load", *arguments, "g.omni").code == 2

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            ("d.json", "error: file `d.json` not found\nhint: did you mean `d.jsonl`?\n"),
            ("p.csv", "error: the type of the rows of p.csv is unknown\nhint: pass --data TYPE=p.csv\n"),
            ("Persn=p.csv", "error: unknown type 'Persn'; did you mean `Person`?\n"),
        ],
    )
    def test_load_of_invalid_source_argument_names_it(self, data: str, message: str) -> None:
        outcome = run("load", "--data", data, "--mode", "append", "g.omni", "--quiet")
        assert (outcome.code, outcome.stdout, outcome.stderr) == (1, "", message)

    @pytest.mark.parametrize("command", ["load", "ingest"])
    def test_load_overwrite_of_remote_graph_requires_confirmation(self, command: str) -> None:
        outcome = run(command, "--data", "d.jsonl", "--mode", "overwrite", "s3://bucket/g.omni")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert f"omnigraph {command} → s3://bucket/g.omni (direct, remote)\n" in outcome.stderr
        assert outcome.stderr.endswith("is not local: confirmation required\nhint: pass --yes to confirm\n")


class TestIngest:
    def test_ingest_warns_and_reads_permissively(self) -> None:
        # Two records on one line, which no strict reader takes.
        write(Path("loose.jsonl"), RECORDS.replace("\n", " "))
        assert run("load", "--data", "loose.jsonl", "--mode", "merge", "g.omni").code == 1
        outcome = run("ingest", "--data", "loose.jsonl", "--branch", "dev", "g.omni")
        assert outcome.code == 0
        assert outcome.stdout == (
            "ingested 3 entities from g.omni into branch dev from main with merge (branch created)\n"
            "node type 'Person': 2 entities loaded\n"
            "edge type 'Knows': 1 entities loaded\n"
        )
        assert outcome.stderr == (
            "warning: `omnigraph ingest` is deprecated; use `omnigraph load`\n"
            "omnigraph ingest → g.omni (direct, local)\n"
        )
        again = run("ingest", "--data", "loose.jsonl", "--branch", "dev", "g.omni")
        assert again.stdout.startswith(
            "ingested 3 entities from g.omni into branch dev from main with merge (bra"
        )
        assert "(branch exists)" in again.stdout

    def test_ingest_reports_values_stored_as_null_and_fields_dropped(self) -> None:
        write(Path("loose.jsonl"), '{"type":"Person","data":{"name":"Cy","age":"old","nick":1}}\n' * 1)
        outcome = run("ingest", "--data", "loose.jsonl", "g.omni", "--quiet", "--json")
        assert outcome.stderr == (
            "warning: `omnigraph ingest` is deprecated; use `omnigraph load`\n"
            "warning: 1 value stored as null, 1 field dropped\n"
            "warning: loose.jsonl: Person record 1, property 'age': expected I32, got \"old\"; stored as null\n"
            "warning: loose.jsonl: Person record 1, property 'nick': unknown field dropped\n"
        )
        found = json.loads(outcome.stdout)["warnings"]
        assert (found["nulled"], found["dropped"]) == (1, 1)
        assert [item["property"] for item in found["items"]] == ["age", "nick"]

    def test_ingest_json_document_has_the_members_of_the_server(self) -> None:
        found = json.loads(run("ingest", "--data", "d.jsonl", "--json", "g.omni").stdout)
        assert list(found) == [
            *("uri", "branch", "base_branch", "branch_created", "mode", "nodes", "edges"),
            *("total_entities", "actor_id", "commit"),
        ]
        assert (found["base_branch"], found["mode"], found["actor_id"]) == ("main", "merge", None)


class Terminal(io.StringIO):
    """Somebody who watches."""

    def isatty(self) -> bool:
        return True


def watch(monkeypatch: pytest.MonkeyPatch, patience: float) -> Terminal:
    """A terminal in place of stderr. Not a fixture: what captures output comes in between."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress_bar, "_DELAY_SECONDS", patience)
    return found


class TestProgress:
    def test_progress_on_a_terminal_shows_stage_and_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = watch(monkeypatch, -1)
        with progress_bar.show_progress("loading", silent=False) as report:
            assert report is not None
            report("read", 12_345)
        assert "loading: read" in terminal.getvalue()
        assert "12,345 rows" in terminal.getvalue()
        # It goes when it is done: the last thing is that its line is erased.
        assert terminal.getvalue().endswith("\x1b[2K")

    @pytest.mark.parametrize("stage", ["send", "receive"])
    def test_progress_of_a_transfer_shows_bytes(self, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = watch(monkeypatch, -1)
        with progress_bar.show_progress("loading", silent=False) as report:
            assert report is not None
            report(stage, 12_345_678)
        assert "12.3 MB" in terminal.getvalue()
        assert "rows" not in terminal.getvalue()

    def test_progress_of_short_work_shows_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = watch(monkeypatch, 1_000)
        with progress_bar.show_progress("loading", silent=False) as report:
            assert report is not None
            report("read", 1)
        assert terminal.getvalue() == ""

    def test_progress_with_quiet_or_without_terminal_shows_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        terminal = watch(monkeypatch, -1)
        with progress_bar.show_progress("loading", silent=True) as report:
            assert report is None
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        with progress_bar.show_progress("loading", silent=False) as report:
            assert report is None
        assert terminal.getvalue() == ""


class TestMappings:
    def test_load_with_mapping_alone_reads_its_sources(self, folder: Path) -> None:
        write(folder / "staff.csv", "full name,years\nEve,3\nFay,4\n")
        write(
            folder / "map.yaml",
            "Person:\n  source: staff.csv\n  columns: {name: full name, age: years}\n",
        )
        outcome = run("load", "--mapping", "map.yaml", "--mode", "append", "g.omni")
        assert outcome.stdout == (
            "loaded g.omni on branch main with append: 2 entities across 1 node types and 0 edge types\n"
        )
        assert names() == ["Eve", "Fay"]

    def test_load_of_file_with_mapping_of_one_type_uses_that_type(self, folder: Path) -> None:
        write(folder / "other.csv", "full name,years\nGus,5\n")
        write(folder / "map.json", '{"Person": {"columns": {"name": "full name", "age": "years"}}}')
        outcome = run("load", "--data", "other.csv", "--mapping", "map.json", "--mode", "append", "g.omni")
        assert (outcome.code, names()) == (0, ["Gus"])

    def test_load_without_data_or_mapping_is_a_usage_error(self) -> None:
        outcome = run("load", "--mode", "append", "g.omni")
        assert outcome.code == 2
        assert "required, unless --mapping" in outcome.stderr

    def test_load_with_mapping_of_unknown_property_is_refused(self, folder: Path) -> None:
        write(folder / "map.json", '{"Person": {"columns": {"nam": "full name"}}}')
        outcome = run("load", "--data", "d.jsonl", "--mapping", "map.json", "--mode", "append", "g.omni")
        assert outcome.code == 1
        assert "nam" in outcome.stderr
        assert "name" in outcome.stderr


class TestRowOperations:
    """The Person of the schema has a key, so a change names a row by it."""

    @pytest.fixture(autouse=True)
    def people(self, folder: Path) -> None:
        run("load", "--data", str(folder / "d.jsonl"), "--mode", "append", "g.omni")

    @staticmethod
    def rows() -> dict[str, object]:
        lines = map(json.loads, run("export", "g.omni").stdout.splitlines())
        return {
            line["data"]["name"] if "type" in line else line["edge"]: line["data"].get("age")
            for line in lines
        }

    def test_load_patch_keeps_columns_that_are_not_given(self, folder: Path) -> None:
        write(folder / "p.csv", "name\nAnn\nCid\n")
        outcome = run("load", "--data", "Person=p.csv", "--mode", "patch", "g.omni")
        assert (outcome.code, outcome.stderr) == (0, TARGET)
        assert outcome.stdout.splitlines()[1:] == ["  Person: 1 inserted, 1 unchanged"]
        assert self.rows() == {"Ann": 30, "Bob": None, "Knows": None, "Cid": None}

    def test_load_delete_removes_nodes_with_their_edges(self, folder: Path) -> None:
        write(folder / "gone.csv", "name\nAnn\nNobody\n")
        command = ("load", "--data", "Person=gone.csv", "--mode", "delete", "g.omni")
        refused = run(*command, "--require-existing")
        assert refused.code == 1
        assert "has no id 'Nobody' to delete" in refused.stderr
        outcome = run(*command, "--json")
        document = json.loads(outcome.stdout)
        assert (outcome.code, document["mode"], document["total_entities"]) == (0, "delete", 0)
        assert self.rows() == {"Bob": None}

    def test_load_change_log_applies_the_newest_change_of_each_key_as_one_commit(self, folder: Path) -> None:
        write(
            folder / "log.csv",
            "op,at,name,age\nU,3,Ann,33\nI,1,Ann,31\nc,2,Cid,5\nd,9,Bob,\nu,4,Bob,44\n",
        )
        before = commits()
        outcome = run(
            "load", "--data", "Person=log.csv", "--mode", "merge",
            "--op-column", "op", "--order-by", "at", "g.omni",
        )  # fmt: skip
        assert outcome.code == 0, outcome.stderr
        assert outcome.stdout.splitlines()[1:] == ["  Person: 1 inserted, 1 updated, 1 deleted, 2 superseded"]
        assert (self.rows(), commits()) == ({"Ann": 33, "Cid": 5}, before + 1)

    def test_load_change_log_with_an_unknown_operation_is_refused(self, folder: Path) -> None:
        write(folder / "log.csv", "op,name\nU,Ann\nX,Bob\n")
        outcome = run("load", "--data", "Person=log.csv", "--mode", "merge", "--op-column", "op", "g.omni")
        assert outcome.code == 1
        assert "X" in outcome.stderr
        assert "line 3" in outcome.stderr or "row 2" in outcome.stderr
        assert self.rows()["Bob"] is None
