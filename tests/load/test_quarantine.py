"""A load with rejects leaves out what breaks a rule, and loads the rest: in memory, on disk, and by the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.errors import ConstraintViolation, InvalidInput
from omnigraph.graph.repository import Repository
from omnigraph.load.load import LoadResult
from omnigraph.load.reject_limit import RejectLimit
from omnigraph.rules.load_mode import WriteMode
from tests.load.loads import BULK, SMALL, image, load
from tests.load.naive_quarantine import settled
from tests.load.test_spilling_load import EVERYBODY, Records, applied, loads
from tests.rules import naive
from tests.rules.naive import CATALOG
from tests.rules.states import edge, image_of
from tests.support.places import fresh_memory


@pytest.fixture(scope="module")
def graph() -> Repository:
    found = Repository.init(fresh_memory(), CATALOG)
    load(found, EVERYBODY, "append")
    return found


def attempt(graph: Repository, records: Records, mode: WriteMode, branch: str, bulk: bool) -> tuple[Any, Any]:
    """What a load reports, and the records that it rejects."""
    rejects: list[Any] = []
    limits = BULK if bulk else SMALL
    try:
        outcome = load(graph, records, mode, limits=limits, branch=branch, source="in", rejects=rejects)
    except ConstraintViolation as error:
        return (error.message, error.violations, error.details), rejects
    return replace(outcome, seconds={}), rejects


def places(records: Records) -> dict[int, tuple[str, int]]:
    """The table and the position of the record at each line."""
    every = [(key, at) for key, found in records.items() for at in range(len(found))]
    return dict(enumerate(every, 1))


HISTORIES = st.lists(loads(), min_size=1, max_size=2)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=HISTORIES)
def test_quarantine_of_any_load_leaves_out_what_the_model_leaves_out(
    graph: Repository, steps: list[tuple[WriteMode, Records]]
) -> None:
    check_quarantine(graph, steps)


@pytest.mark.long
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=HISTORIES)
def test_quarantine_of_many_loads_leaves_out_what_the_model_leaves_out(
    graph: Repository, steps: list[tuple[WriteMode, Records]]
) -> None:
    check_quarantine(graph, steps)


def check_quarantine(graph: Repository, steps: list[tuple[WriteMode, Records]]) -> None:
    """Perform loads in memory and on disk, and compare both with the model."""
    number = len(graph.branches())
    small, bulk = f"small-{number}", f"bulk-{number}"
    graph.create_branch(small)
    graph.create_branch(bulk)
    state = image_of(EVERYBODY)
    for mode, records in steps:
        reported, rejects = attempt(graph, records, mode, small, bulk=False)
        assert attempt(graph, records, mode, bulk, bulk=True) == (reported, rejects)
        broken = {
            (key, at)
            for key, found in records.items()
            for at, row in enumerate(found)
            if naive.broken_rows({key: {row["id"]: row}})
        }
        valid = {
            key: [(at, row) for at, row in enumerate(found) if (key, at) not in broken]
            for key, found in records.items()
        }
        rows = {key: [row for _, row in found] for key, found in valid.items()}
        left, is_loaded = settled(state, mode, rows)
        assert isinstance(reported, LoadResult) == is_loaded
        if is_loaded:
            expected = broken | {(key, valid[key][at][0]) for key, found in left.items() for at in found}
            assert {places(records)[item["line"]] for item in rejects} == expected
            assert reported.rejected == len(rejects) == len(expected)
            kept = {
                key: [row for at, row in enumerate(found) if at not in left.get(key, ())]
                for key, found in rows.items()
            }
            state = applied(state, mode, kept)
        found = image(graph, small)
        assert image(graph, bulk) == found
        assert {key: [row["id"] for row in of_key] for key, of_key in found.items()} == {
            key: sorted(state.get(key, {})) for key in found
        }


@pytest.mark.parametrize("bulk", [False, True])
def test_quarantine_of_an_append_gives_records_of_stored_ids_the_same_reasons(
    graph: Repository, bulk: bool
) -> None:
    branch = f"append-{bulk}"
    graph.create_branch(branch)
    # Only in a merge does the record of the stored row with the value come first.
    records: Records = {"edge:J": [edge("j1", "p2", "c2", n=1), edge("j0", "p2", "c2", n=1)]}
    _, rejects = attempt(graph, records, "append", branch, bulk)
    assert [item["reason"] for item in rejects] == [
        "edge type 'J' already has id 'j1'",
        "edge type 'J' already has id 'j0'; @unique violation on J.n: value '1' held by 'j1' and 'j0'",
    ]


@pytest.mark.parametrize("bulk", [False, True])
def test_quarantine_cascades_from_duplicate_nodes_over_edges_to_cardinality(
    graph: Repository, bulk: bool
) -> None:
    branch = f"cascade-{bulk}"
    graph.create_branch(branch)
    records: Records = {
        "node:P": [{"id": "p7", "mail": "m"}, {"id": "p8", "mail": "m"}, {"id": "p7"}],
        "edge:K": [
            edge("k7", "p7", "p8"),
            edge("k8", "p7", "p0"),
            edge("k9", "p0", "p3"),
            edge("k7", "p7", "p1"),
        ],
    }
    reported, rejects = attempt(graph, records, "append", branch, bulk)
    assert (reported.nodes, reported.edges, reported.rejected) == ({"P": 1}, {"K": 1}, 5)
    assert [(item["type"], item["id"], item["line"], item["rule"], item["reason"]) for item in rejects] == [
        ("P", "p8", 2, "unique", "@unique violation on P.mail: value 'm' held by 'p7' and 'p8'"),
        ("P", "p7", 3, "unique", "@unique violation on P.id: value 'p7' held by 'p7' and 'p7'"),
        ("K", "k7", 4, "endpoint", "dst 'p8' not found in P: its record was rejected"),
        ("K", "k9", 6, "card", "@card violation on edge K: source 'p0' has 3 edges (max 2)"),
        ("K", "k7", 7, "unique", "@unique violation on K.id: value 'k7' held by 'k7' and 'k7'"),
    ]
    assert rejects[2]["record"] == {"edge": "K", "from": "p7", "to": "p8", "data": {"id": "k7"}}


def check_chain(graph: Repository, branch: str, bulk: bool, length: int) -> None:
    """Shift a unique value along a chain whose last value is taken: each round returns one stored row."""
    graph.create_branch(branch)
    ids = [f"c{at}" for at in range(length + 1)]
    # The mails of the schema have only letters.
    mails = ["chain" + "".join(chr(ord("a") + int(digit)) for digit in str(at)) for at in range(length + 1)]
    people = [{"id": id_, "mail": mail} for id_, mail in zip(ids, mails, strict=True)]
    load(graph, {"node:P": people}, "append", branch=branch)
    shifted: Records = {
        "node:P": [{"id": id_, "mail": mail} for id_, mail in zip(ids, mails[1:], strict=False)]
    }
    reported, rejects = attempt(graph, shifted, "merge", branch, bulk)
    assert isinstance(reported, LoadResult)
    assert (reported.rejected, {item["rule"] for item in rejects}) == (length, {"unique"})
    stored = {row["id"]: row["mail"] for row in image(graph, branch)["node:P"]}
    assert [stored[id_] for id_ in ids] == mails


@pytest.mark.parametrize("bulk", [False, True])
def test_quarantine_of_a_merge_follows_a_chain_of_returning_rows_to_its_end(
    graph: Repository, bulk: bool
) -> None:
    check_chain(graph, f"chain-{bulk}", bulk, length=12)


@pytest.mark.long
def test_quarantine_of_a_merge_follows_a_chain_of_more_than_a_thousand_rounds(graph: Repository) -> None:
    check_chain(graph, "long-chain", bulk=False, length=1_010)


@pytest.mark.parametrize("bulk", [False, True])
def test_quarantine_of_a_merge_keeps_the_record_whose_stored_row_has_the_unique_value(
    graph: Repository, bulk: bool
) -> None:
    branch = f"holder-{bulk}"
    graph.create_branch(branch)
    load(graph, {"node:P": [{"id": "h1", "mail": "m"}]}, "append", branch=branch)
    records: Records = {"node:P": [{"id": "h2", "mail": "m"}, {"id": "h1", "mail": "m", "age": 9}]}
    reported, rejects = attempt(graph, records, "merge", branch, bulk)
    assert isinstance(reported, LoadResult)
    assert [(item["id"], item["line"], item["rule"]) for item in rejects] == [("h2", 1, "unique")]
    people = {row["id"]: row for row in image(graph, branch)["node:P"]}
    assert "h2" not in people
    assert people["h1"]["age"] == 9
    # The same for the records of an id that a later record supersedes.
    records = {"node:P": [{"id": "h2", "mail": "m"}, {"id": "h1", "mail": "m"}, {"id": "h1", "mail": "m"}]}
    reported, rejects = attempt(graph, records, "merge", branch, bulk)
    assert [(item["id"], item["line"]) for item in rejects] == [("h2", 1), ("h1", 3)]


@pytest.mark.parametrize("bulk", [False, True])
def test_quarantine_of_too_many_edges_keeps_the_first_records(graph: Repository, bulk: bool) -> None:
    branch = f"first-{bulk}"
    graph.create_branch(branch)
    edges = [edge(f"k{number}", "p7", f"p{9 - number}") for number in (9, 8, 7, 6)]
    records: Records = {"node:P": [{"id": "p7"}], "edge:K": edges}
    reported, rejects = attempt(graph, records, "append", branch, bulk)
    assert (reported.edges, [item["id"] for item in rejects]) == ({"K": 2}, ["k7", "k6"])


@pytest.mark.parametrize("bulk", [False, True])
def test_load_above_max_rejects_commits_nothing_and_has_all_rejects(graph: Repository, bulk: bool) -> None:
    branch = f"limit-{bulk}"
    graph.create_branch(branch)
    people = [{"id": f"q{number}", "age": 12 if number < 2 else None} for number in range(8)]
    records: Records = {"node:P": people, "edge:K": [edge("k7", "q0", "q1"), edge("k8", "q2", "q3")]}
    limits = BULK if bulk else SMALL
    before = graph.head(branch).commit
    rejects: list[Any] = []
    with pytest.raises(
        ConstraintViolation, match=r"3 of 10 records rejected, more than max_rejects 29\.9%"
    ) as caught:
        load(
            graph,
            records,
            "append",
            limits=limits,
            branch=branch,
            rejects=rejects,
            limit=RejectLimit.parse("29.9%"),
        )
    assert caught.value.details["rejected"] == {"K": {"endpoint": 1}, "P": {"range": 2}}
    assert (graph.head(branch).commit, len(rejects)) == (before, 3)
    result = load(
        graph,
        records,
        "append",
        limits=limits,
        branch=branch,
        rejects=rejects,
        limit=RejectLimit.parse("30%"),
    )
    assert (result.rejected, result.nodes, result.edges) == (3, {"P": 6}, {"K": 1})


@pytest.mark.parametrize("value", ["", "-1", -1, "1.5", "101%", "%", True, 0.5, "5 %%"])
def test_max_rejects_of_another_form_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="expected a number of records or a percentage"):
        RejectLimit.parse(value)
