"""Loads with operations that leave out what breaks a rule equal loads without the rejected records."""

from __future__ import annotations

import json
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import ConstraintViolation
from omnigraph.graph.repository import Repository
from omnigraph.load import key_lookups, operation_staging
from omnigraph.load.quarantine import Quarantine
from omnigraph.load.reject_log import RejectLog
from omnigraph.sources.row_operations import Operation
from tests.load.histories import Change, Refused, changes, exact, replay
from tests.load.loads import BULK, SMALL
from tests.load.test_operations import load_in_tasks, load_locally, state
from tests.rules.naive import CATALOG
from tests.support.places import fresh_memory

_NUMBERS = count()


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    folder = tmp_path_factory.mktemp("quarantine")
    return Repository.init(str(folder / "graph"), CATALOG, durability="os")


def outcome(graph: Repository, branch: str, load: Any) -> Any:
    """Return the rejected records of a load, and the state or the violations after it."""
    with RejectLog() as log:
        try:
            result = load(quarantine=Quarantine(log))
        except ConstraintViolation as error:
            return [], (error.message, error.violations)
        rejects = list(log.lines())
    assert result.rejected == len(rejects)
    rows = {
        key: {id_: exact(row) for id_, row in found.items()} for key, found in state(graph, branch).items()
    }
    affected = {key: of for key, of in result.affected.items() if any(of.values())}
    return rejects, (rows, affected, result.unchanged)


def check_quarantine(graph: Repository, folder: Path, loads: list[list[Change]], *, is_patch: bool) -> None:
    """Load changes in memory, in parts on disk and in tasks, and replay those that are not rejected."""
    name = f"q{next(_NUMBERS)}"
    file = folder / f"{name}.jsonl"
    default = Operation.PATCH if is_patch else Operation.REPLACE
    for kind in ("memory", "disk", "tasks"):
        graph.create_branch(f"{name}/{kind}", "main")
    for history in loads:
        before = state(graph, f"{name}/memory")
        file.write_text("".join(f"{json.dumps(change.record())}\n" for change in history))
        work = {
            "memory": partial(load_locally, graph, file, default, f"{name}/memory", SMALL),
            "disk": partial(load_locally, graph, file, default, f"{name}/disk", BULK),
            "tasks": partial(load_in_tasks, graph, file, default, f"{name}/tasks"),
        }
        found = [outcome(graph, f"{name}/{kind}", load) for kind, load in work.items()]
        assert found[0] == found[1]
        assert found[0] == found[2]
        rejects, reported = found[0]
        if isinstance(reported[0], str):
            # Deleted nodes have left sources with too few edges, and no record states one of these edges.
            assert "(min 1)" in reported[0]
            continue
        rejected = {item["line"] for item in rejects}
        assert len(rejected) == len(rejects)
        kept = [change for line, change in enumerate(history, 1) if line not in rejected]
        after, affected = replay(before, kept, is_patch=is_patch)
        rows, counts, _ = reported
        assert rows == {key: {id_: exact(row) for id_, row in of.items()} for key, of in after.items()}
        assert counts == affected
        if rejected:
            with pytest.raises(Refused):
                replay(before, history, is_patch=is_patch)
            by_line = dict(enumerate(history, 1))
            for item in rejects:
                record = by_line[item["line"]].record()
                assert item["record"]["op"] == ("D" if record["op"] in "Dd" else "U")
                wanted = {key: value for key, value in record.items() if key not in ("op", "data")}
                assert wanted.items() <= item["record"].items()


histories = st.booleans().flatmap(
    lambda is_patch: st.tuples(
        st.just(is_patch), st.lists(st.lists(changes(is_patch=is_patch), max_size=10), min_size=1, max_size=2)
    )
)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_staging, "_PART_ROWS", 2)
    monkeypatch.setattr(key_lookups, "MIN_ROWS_PER_VALUE", 0)


@pytest.mark.usefixtures("small_parts")
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories)
def test_quarantine_of_a_history_equals_a_replay_without_the_rejected_records(
    graph: Repository, tmp_path: Path, history: tuple[bool, list[list[Change]]]
) -> None:
    check_quarantine(graph, tmp_path, history[1], is_patch=history[0])


@pytest.mark.long
@pytest.mark.usefixtures("small_parts")
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories)
def test_quarantine_of_many_histories_equals_a_replay_without_the_rejected_records(
    graph: Repository, tmp_path: Path, history: tuple[bool, list[list[Change]]]
) -> None:
    check_quarantine(graph, tmp_path, history[1], is_patch=history[0])


# --- through the API ----------------------------------------------------------------------------------------

SCHEMA = """
node City { name: String @key  mail: String? @unique  size: I64?  kind: String }
node Person { name: String @key }
edge Lives: Person -> City @card(1..2) { since: I32?  @key(src, dst) }
"""


@pytest.fixture
def cities() -> og.Graph:
    graph = og.init(fresh_memory(), schema=SCHEMA)
    graph.load(
        [
            *(
                {"type": "City", "data": {"name": name, "mail": name.lower(), "kind": "a"}}
                for name in ("Bern", "Rome")
            ),
            {"type": "Person", "data": {"name": "Ana"}},
            {"edge": "Lives", "from": "Ana", "to": "Bern"},
        ]
    )
    return graph


def test_quarantine_of_a_change_log_leaves_out_all_records_of_an_id_and_its_edges(cities: og.Graph) -> None:
    log = [
        {"type": "City", "op": "I", "seq": 1, "data": {"name": "Oslo", "mail": "rome", "kind": "b"}},
        {"type": "City", "op": "U", "seq": 2, "data": {"name": "Oslo", "size": 3}},
        {"type": "City", "op": "U", "seq": 3, "data": {"name": "Rome", "size": 4}},
        {"edge": "Lives", "op": "I", "seq": 4, "from": "Ana", "to": "Oslo"},
        {"edge": "Lives", "op": "D", "seq": 5, "from": "Ana", "to": "Bern"},
        {"type": "City", "op": "U", "seq": 6, "data": {"name": "Paris"}},
        {"type": "City", "op": "U", "seq": 7, "data": {"name": "Bern", "size": 9}},
    ]
    rejected: list[Any] = []
    receipt = cities.load(log, "patch", op_column="op", order_by="seq", rejects=rejected.append)
    reasons = {item["line"]: (item["type"], item["id"], item["rule"], item["reason"]) for item in rejected}
    held = "value 'rome' held by 'Rome' and 'Oslo'"
    few = "@card violation on edge Lives: source 'Ana' has 0 edges (min 1)"
    assert reasons == {
        1: ("City", "Oslo", "unique", f"@unique violation on City.mail: {held}"),
        2: ("City", "Oslo", "unique", f"@unique violation on City.mail: {held}"),
        4: (
            "Lives",
            '["Ana","Oslo"]',
            "endpoint",
            "dst 'Oslo' not found in City: its record was rejected",
        ),
        5: ("Lives", '["Ana","Bern"]', "card", few),
        6: ("City", "Paris", "required", "non-nullable property 'kind' has null or invalid values"),
    }
    assert receipt.rejected_by_rule == {
        "City": {"required": 1, "unique": 2},
        "Lives": {"card": 1, "endpoint": 1},
    }
    assert (receipt.rejected, receipt.affected["City"]["updated"]) == (5, 2)
    # Records with their operation and order load back; what was given as null is given again.
    records = [item["record"] for item in rejected]
    assert records[1] == {"type": "City", "op": "U", "seq": 2, "data": {"name": "Oslo", "size": 3}}
    records[0]["data"]["mail"] = "oslo"
    repaired = cities.load(
        [record for record in records if record["data"].get("name") != "Paris"],
        "patch",
        op_column="op",
        order_by="seq",
    )
    assert repaired.affected["Lives"] == {"inserted": 1, "updated": 0, "deleted": 1}


def test_quarantine_of_deletes_with_require_existing_leaves_out_absent_rows(cities: og.Graph) -> None:
    rejected: list[Any] = []
    receipt = cities.load(
        {"City": [{"name": "Rome"}, {"name": "Nowhere"}]},
        "delete",
        require_existing=True,
        rejects=rejected.append,
    )
    assert receipt.affected["City"]["deleted"] == 1
    assert [(item["line"], item["rule"], item["reason"]) for item in rejected] == [
        (2, "key", "node type 'City' has no id 'Nowhere' to delete")
    ]
    assert rejected[0]["record"] == {"type": "City", "data": {"name": "Nowhere"}}


def test_quarantine_of_a_delete_that_takes_the_last_edge_refuses_the_load(cities: og.Graph) -> None:
    before = cities.commits()[0].id
    rejected: list[Any] = []
    with pytest.raises(ConstraintViolation, match=r"source 'Ana' has 0 edges \(min 1\)") as caught:
        cities.load({"City": [{"name": "Bern"}]}, "delete", rejects=rejected.append)
    assert "deletes of nodes" in (caught.value.hint or "")
    assert cities.commits()[0].id == before


def test_quarantine_of_operations_with_more_rejects_than_allowed_refuses_the_load(cities: og.Graph) -> None:
    cities_ = [{"name": "Zug", "mail": "rome", "kind": "b"}, {"name": "Rome", "size": 1}]
    rows = [{"type": "City", "data": data} for data in cities_]
    rejected: list[Any] = []
    with pytest.raises(ConstraintViolation, match="1 of 2 records rejected, more than max_rejects 0"):
        cities.load(rows, "patch", rejects=rejected.append, max_rejects=0)
    assert [item["id"] for item in rejected] == ["Zug"]
    assert cities.get("City", "Rome")["size"] is None  # type: ignore[index]
