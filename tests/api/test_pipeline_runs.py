"""The state of a pipeline is committed, merged and reverted with the rows of its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.api.results.loads import LoadReceipt
from omnigraph.errors import Conflict, NotFound
from omnigraph.graph.pipeline_runs import PipelineRun
from omnigraph.load.load_request import LoadRequest
from omnigraph.rules.load_mode import LoadMode

SCHEMA = "node City { name: String @key  mayor: String? }"


@pytest.fixture
def graph(tmp_path: Path) -> LocalGraph:
    made = og.init(tmp_path / "g.omni", schema=SCHEMA)
    assert isinstance(made, LocalGraph)
    return made


def load_run(
    graph: LocalGraph,
    names: list[str],
    previous: str | None,
    record: str,
    branch: str = "main",
    **options: Any,
) -> LoadReceipt:
    rows = {"City": [{"name": name} for name in names]}
    run = PipelineRun("shop", previous, record)
    return graph.load_run(LoadRequest(rows, "merge", branch, run=run, **options))


def test_run_on_review_branch_merged_brings_its_state_to_main(graph: LocalGraph) -> None:
    receipt = load_run(graph, ["Bern"], None, '{"files": 1}', "review", create_from="main")
    assert receipt.commit is not None
    assert graph.runs.last_runs("main") == {}
    assert graph.runs.last_runs("review") == {"shop": receipt.commit.id}

    graph.branches.merge("review", delete_source=True)

    assert graph.runs.last_runs("main") == {"shop": receipt.commit.id}
    assert graph.runs.commit_of(receipt.commit.id).run == '{"files": 1}'
    graph.load({"City": [{"name": "Rome"}]})
    assert graph.runs.last_runs("main") == {"shop": receipt.commit.id}


def test_run_without_changed_rows_commits_its_state(graph: LocalGraph) -> None:
    first = load_run(graph, ["Bern"], None, "1").commit
    assert first is not None
    second = load_run(graph, ["Bern"], first.id, "2").commit
    assert second is not None
    assert graph.runs.last_runs("main") == {"shop": second.id}
    assert list(graph.diff(first.id, second.id)) == []


@pytest.mark.parametrize(("mode", "name"), [("patch", "Bern"), ("delete", "Rome")])
def test_run_of_operations_without_effect_commits_its_state(
    graph: LocalGraph, mode: LoadMode, name: str
) -> None:
    first = load_run(graph, ["Bern"], None, "1").commit
    assert first is not None
    second = graph.load_run(
        LoadRequest({"City": [{"name": name}]}, mode, "main", run=PipelineRun("shop", first.id, "2"))
    ).commit
    assert second is not None
    assert graph.runs.last_runs("main") == {"shop": second.id}
    assert list(graph.diff(first.id, second.id)) == []


def test_run_that_continues_an_older_run_raises_conflict(graph: LocalGraph) -> None:
    load_run(graph, ["Bern"], None, "1")
    with pytest.raises(Conflict, match="another run of pipeline 'shop'"):
        load_run(graph, ["Rome"], None, "1")
    assert graph.get("City", "Rome") is None


def test_merge_of_two_runs_from_one_state_raises_conflict_for_the_second(graph: LocalGraph) -> None:
    load_run(graph, ["Bern"], None, "1", "review/a", create_from="main")
    load_run(graph, ["Rome"], None, "1", "review/b", create_from="main")
    graph.branches.merge("review/a")
    with pytest.raises(Conflict, match="another run of pipeline 'shop'"):
        graph.branches.merge("review/b")
    assert graph.get("City", "Rome") is None


def test_revert_of_a_run_restores_the_state_before_it(graph: LocalGraph) -> None:
    first = load_run(graph, ["Bern"], None, "1").commit
    assert first is not None
    second = load_run(graph, ["Rome"], first.id, "2").commit
    assert second is not None
    graph.revert(second.id)
    assert graph.runs.last_runs("main") == {"shop": first.id}
    graph.revert(first.id)
    assert graph.runs.last_runs("main") == {}
    assert graph.get("City", "Bern") is None


def test_dry_run_of_a_run_changes_no_state(graph: LocalGraph) -> None:
    assert load_run(graph, ["Bern"], None, "1", dry_run=True).commit is None
    assert graph.runs.last_runs("main") == {}


def test_record_of_an_ordinary_commit_raises_not_found(graph: LocalGraph) -> None:
    commit = graph.load({"City": [{"name": "Rome"}]}).commit
    assert commit is not None
    with pytest.raises(NotFound, match="was not made by a pipeline"):
        graph.runs.commit_of(commit.id)


def test_verify_of_a_graph_with_runs_reports_no_damage(graph: LocalGraph) -> None:
    load_run(graph, ["Bern"], None, "1", "review", create_from="main")
    graph.branches.merge("review")
    assert not graph.verify(all_commits=True).damage
