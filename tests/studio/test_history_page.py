"""The History page in a browser: the commit graph, a commit, two states, the versions of an entity, and reverts."""

from __future__ import annotations

from selenium.webdriver.common.keys import Keys

from tests.server.running import Running
from tests.studio.browser import Studio
from tests.studio.sample import records
from tests.support.waiting import wait_until

RAISE = "query raise($who: String, $to: I64) { update Person set { salary: $to } where handle = $who }"


def test_commit_graph_shows_branches_and_the_changes_of_a_commit(studio: Studio) -> None:
    studio.open("history")
    studio.find(".graph-commit", "Plan the moonshot")
    titles = [item.text for item in studio.all(".graph-title") if item.text]
    assert any("audited" in text and "main" in text for text in titles)
    # The merge has lines to both of its parents.
    merge = studio.find(".graph-commit", "Merge hiring")
    assert len(merge.find_elements("css selector", "path")) == 3
    merge.click()
    studio.find(".commit-head", "Merged")
    studio.find(".entity-change[data-entity=zoe][data-op=insert]", "Zoe Holm")
    studio.press(Keys.ARROW_DOWN)
    studio.press(Keys.ENTER)
    studio.find(".commit-head h2", "Adjust another salary")
    assert "commit=" in studio.address


def test_commits_of_one_branch_leave_out_the_others(studio: Studio) -> None:
    studio.open("history", only="1")
    studio.find(".graph-commit", "Hire Zoe")
    assert "Plan the moonshot" not in studio.text


def test_compare_shows_the_differences_of_two_states(studio: Studio) -> None:
    studio.open("history", view="compare", before="main", after="raises")
    # Unlike a review, it compares with the present state of main.
    assert "79000" in studio.find(".entity-change[data-entity=adadahl]").text
    studio.click("button[aria-label='Swap the states']")
    studio.find(".entity-change[data-entity=P99][data-op=delete]")


def test_entity_history_lists_versions_and_who_set_what(studio: Studio) -> None:
    studio.open("history", view="compare", before="main", after="raises")
    studio.click(".entity-change[data-entity=adadahl] header a")
    studio.find(".versions h2", "2 versions of Person adadahl")
    assert "Correct adadahl" in studio.find(".blame tr[data-property=salary]").text
    assert "Import the company" in studio.find(".blame tr[data-property=name]").text


def test_revert_with_a_conflict_settled_by_clicking(studio: Studio, served: Running) -> None:
    who = str(records()["Person"][-4]["handle"])
    before = records()["Person"][-4]["salary"]
    with served.client("ann", "/graphs/company") as client:
        assert client.post("/branches", json={"name": "undo"}).status_code == 200
        commits = [
            client.post(
                "/mutate", json={"query": RAISE, "params": {"who": who, "to": to}, "branch": "undo"}
            ).json()["commit"]["graph_commit_id"]
            for to in (1_000, 2_000)
        ]
        studio.open("history", branch="undo", commit=commits[0])
        studio.click("#open-revert")
        studio.find(".dialog .conflict", "2000")
        assert not studio.find("#revert").is_enabled()
        studio.click(".dialog [data-side=theirs] input")
        studio.click("#revert")
        wait_until(lambda: commits[0] not in studio.address, "the new commit")
        studio.find(".commit-head h2", "Revert")
        found = client.get("/entity", params={"type": "Person", "id": who, "branch": "undo"}).json()
    assert found["entity"]["salary"] == before


def test_revert_without_permission_is_not_offered(reader: Studio) -> None:
    reader.open("history")
    reader.find(".commit-head", "Compare with main")
    assert reader.all("#open-revert") == []
