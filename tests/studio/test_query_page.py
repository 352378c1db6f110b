"""The Query page in a browser: edit, run, views of the result, parameters, stored queries and moments."""

from __future__ import annotations

from selenium.webdriver.common.keys import Keys

from tests.server.running import Running
from tests.studio.browser import Studio
from tests.support.waiting import wait_until

PEOPLE = (
    "query people($role: String) { match { $p: Person { role: $role }  $p memberOf $t } return { $p, $t } }"
)
ALL = """\
query salaries() {
  match { $p: Person }
  return { $p.handle as handle, $p.salary as salary }
  order { handle }
}
"""


def test_query_run_with_the_keyboard_shows_rows(studio: Studio) -> None:
    studio.open("query")
    studio.write(ALL)
    studio.find(".cm-content", "salaries")
    studio.press(Keys.CONTROL, Keys.ENTER)
    studio.find(".result-count", "49 rows")
    assert studio.cells()[0].startswith("ada")
    # The address is the view: another tab shows the same query.
    wait_until(lambda: "q=query+salaries" in studio.address, "the query in the address")


def test_query_with_parameters_shows_a_form_and_a_graph(studio: Studio) -> None:
    studio.open("query", q=PEOPLE, view="graph")
    studio.find(".params input").send_keys("designer", Keys.ENTER)
    canvas = studio.find(".graph-canvas")
    nodes = int(canvas.get_attribute("data-nodes") or 0)
    assert nodes > 4
    assert int(canvas.get_attribute("data-edges") or 0) > 2
    studio.click("[data-tab=json]")
    studio.find(".json pre", '"p"')
    studio.click("[data-tab=plan]")
    studio.find(".plan", "Person")


def test_query_with_an_error_is_marked_in_the_editor(studio: Studio) -> None:
    studio.open("query", q="query broken() { match { $p: Persn } return { $p } }")
    studio.find(".cm-lintRange-error")
    studio.click("#run")
    studio.find(".error-box", "Persn")


def test_query_completion_offers_properties_of_the_type(studio: Studio) -> None:
    studio.open("query")
    studio.write("query a() { match { $p: Person } return { $p")
    studio.press(".")
    studio.find(".cm-tooltip-autocomplete")
    offered = {item.text for item in studio.all(".cm-completionLabel")}
    assert offered == {"handle", "joined", "name", "role", "salary"}


def test_stored_query_runs_from_the_library(studio: Studio) -> None:
    studio.open("query")
    studio.click(".library a", "people_in_team")
    studio.find(".stored", "The members of a team")
    studio.find(".params input").send_keys("storage", Keys.ENTER)
    studio.find(".result-count", "rows")
    assert len(studio.cells()) == 2


def test_query_is_saved_under_a_name_and_opened_again(studio: Studio) -> None:
    studio.open("query", q=ALL)
    studio.find(".save-query input", "salaries")
    studio.click(".save-query button")
    studio.open("query")
    studio.click(".library .saved .past", "salaries")
    studio.find(".cm-content", "query salaries()")
    studio.click(".library button[aria-label='Remove salaries']")
    wait_until(lambda: not studio.all(".library .saved li"), "the list without the query")


def test_query_at_an_earlier_commit_reads_that_state(studio: Studio, served: Running) -> None:
    with served.client("ann", "/graphs/company") as client:
        first = client.get("/commits", params={"branch": "main"}).json()["commits"][-2]["graph_commit_id"]
    studio.open("query", q="query n() { match { $p: Person } return { count($p) as n } }", at=first)
    studio.click("#run")
    assert studio.cells() == ["48"]
    studio.click("button[aria-label^='Moment']")
    slider = studio.find(".travel input[type=range]:enabled")
    slider.send_keys(Keys.END)
    wait_until(lambda: "at=" not in studio.address, "the address of now")
    studio.click("#run")
    wait_until(lambda: studio.cells() == ["49"], "the newest state")


def test_mutation_is_committed_to_the_branch_that_the_button_names(studio: Studio, served: Running) -> None:
    with served.client("ann", "/graphs/company") as client:
        assert client.post("/branches", json={"name": "typed"}).status_code == 200
    add = 'query add() { insert Place { slug: "rome", name: "Rome" } }'
    studio.open("query", q=add, branch="typed")
    studio.click("#run", "Commit to typed")
    studio.find(".receipt", "1 node and 0 edges on typed")


def test_table_of_200_000_rows_scrolls_to_the_last(studio: Studio) -> None:
    studio.open(
        "query",
        "large",
        q="query all() { match { $r: Reading } return { $r.at as at, $r.value as value } order { at } }",
    )
    studio.click("#run")
    studio.find(".result-count", "200,000 rows")
    assert studio.cells()[0] == "0"
    studio.run("document.querySelector('.table').focus()")
    studio.press(Keys.END)
    assert studio.cells(200_000)[0] == "199999"
    # Only the rows in view are elements.
    assert len(studio.all("[role=row]")) < 80


def test_sign_in_with_a_token_opens_the_page(signed_out: Studio) -> None:
    signed_out.open("query")
    signed_out.sign_in("wrong")
    signed_out.find(".sign-in", "does not know this token")
    signed_out.find("input[type=password]").send_keys(Keys.CONTROL, "a")
    signed_out.sign_in("token-of-rex")
    signed_out.find(".actor", "rex")


def test_mutation_without_permission_cannot_be_run(reader: Studio) -> None:
    reader.open("query", q='query add() { insert Place { slug: "x", name: "X" } }')
    button = reader.find("#run", "Commit to main")
    assert not button.is_enabled()
