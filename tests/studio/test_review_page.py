"""The Review page in a browser: the changes of a branch, conflicts that are settled by clicking, and the merge."""

from __future__ import annotations

from tests.server.running import Running
from tests.studio.browser import Studio
from tests.studio.sample import records
from tests.support.waiting import wait_until

RAISE = "query raise($who: String, $to: I64) { update Person set { salary: $to } where handle = $who }"
# The first people of the sample are changed by its commits, the last ones are not.
PEOPLE = [str(row["handle"]) for row in records()["Person"][-3:]]


def test_review_lists_branches_with_their_newest_commit(studio: Studio) -> None:
    studio.open("review")
    studio.click(".branch-list a", "raises")
    studio.find(".review-head", "5 commits by bob")


def test_review_shows_only_what_the_branch_changed(studio: Studio) -> None:
    studio.open("review", branch="raises")
    summary = studio.find(".change-summary", "Person").text
    # The corrections that were made on main since are not part of it.
    assert "~4" in summary
    assert "+1" in summary
    studio.click(".change-summary button", "Project")
    wait_until(lambda: len(studio.all(".entity-change")) == 1, "the changes of one type")
    assert "Moonshot" in studio.find(".entity-change[data-entity=P99] .new", "Moonshot").text
    assert "type=Project" in studio.address
    studio.open("review", branch="raises", type="Person")
    row = studio.find(".entity-change[data-entity=adadahl]")
    assert "75000" in row.text
    assert "81000" in row.text
    assert "handle" not in row.text
    studio.click(".entity-change[data-entity=adadahl] button", "All 5 properties")
    studio.find(".entity-change[data-entity=adadahl]", "handle")


def test_review_runs_the_checks_of_the_server(studio: Studio) -> None:
    studio.open("review", branch="raises", view="checks")
    studio.find(".checks li", "leaderless_projects")
    assert studio.cells(2) == ["P99"]
    studio.find(".merge-state", "1 check with findings")


def test_merge_with_conflicts_settled_by_clicking(studio: Studio, served: Running) -> None:
    with served.client("ann", "/graphs/company") as client:
        for name, amounts in (("settle-into", (1_000, 2_000, 3_000)), ("settle", (10_000, 20_000, 30_000))):
            assert client.post("/branches", json={"name": name}).status_code == 200
            for who, to in zip(PEOPLE, amounts, strict=True):
                body = {"query": RAISE, "params": {"who": who, "to": to}, "branch": name}
                assert client.post("/mutate", json=body).status_code == 200
        studio.open("review", branch="settle", into="settle-into")
        studio.click(".merge-state a", "3 conflicts to settle")
        assert not studio.find("#merge").is_enabled()
        # One rule for all, then a choice and a value of its own for two of them.
        studio.click("[data-rule=theirs]")
        studio.click(f"[data-conflict={PEOPLE[0]}] [data-side=ours] input")
        value = studio.find(f"[data-conflict={PEOPLE[1]}] input[aria-label^=Value]")
        value.send_keys("x")
        studio.find(".field-problem", "Expected a JSON value")
        assert not studio.find("#merge").is_enabled()
        value.clear()
        value.send_keys("2500")
        studio.find(".merge-state", "3 conflicts settled")
        studio.click("#merge")
        studio.find(".merge-card", "settle is in settle-into")
        salaries = [
            client.get("/entity", params={"type": "Person", "id": who, "branch": "settle-into"}).json()
            for who in PEOPLE
        ]
    assert [item["entity"]["salary"] for item in salaries] == [1_000, 2_500, 30_000]


def test_merge_without_permission_is_not_offered(reader: Studio) -> None:
    reader.open("review", branch="raises")
    reader.find(".merge-card", "The policy does not let you merge into main.")
    reader.find(".entity-change")
    assert reader.all("#merge") == []
    assert reader.all(".merge-card input") == []
