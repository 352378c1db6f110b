"""The Explore page in a browser: start from a type or a search, follow edges, style, pin and hide."""

from __future__ import annotations

from selenium.webdriver.common.action_chains import ActionChains

from tests.studio.browser import Studio
from tests.support.waiting import wait_until


def counts(studio: Studio) -> tuple[int, int]:
    """Return the numbers of nodes and edges in the picture."""
    canvas = studio.find(".graph-canvas")
    return int(canvas.get_attribute("data-nodes") or 0), int(canvas.get_attribute("data-edges") or 0)


def test_search_shows_the_nodes_that_contain_a_text(studio: Studio) -> None:
    studio.open("explore", type="Person")
    wait_until(lambda: counts(studio)[0] == 49, "all people")
    studio.find(".explore-search").send_keys("Zoe\n")
    wait_until(lambda: counts(studio)[0] == 1, "the person")
    assert "text=Zoe" in studio.address
    studio.find(".node-list button", "Zoe Holm")


def test_node_is_expanded_by_edge_type_and_the_address_keeps_the_picture(studio: Studio) -> None:
    studio.open("explore", type="Team")
    studio.click("[data-node='Team/storage']")
    studio.find(".node-panel", "Storage")
    studio.click(".edge-counts [data-edge=MemberOf]", "0 of 8")
    wait_until(lambda: counts(studio) == (14, 8), "the members")
    studio.run("document.activeElement.blur()")
    studio.press("e")
    wait_until(lambda: counts(studio) == (19, 13), "all neighbors")
    # Another tab shows the same nodes.
    studio.driver.refresh()
    wait_until(lambda: counts(studio) == (19, 13), "the same picture")
    studio.find(".node-panel", "Storage")
    studio.find("body").send_keys("p")
    studio.find(".node-panel", "pinned")
    studio.press("x")
    wait_until(lambda: counts(studio)[0] == 18, "the picture without the node")
    studio.click("#show-hidden")
    wait_until(lambda: counts(studio)[0] == 19, "the node")


def test_node_is_chosen_and_expanded_with_the_pointer(studio: Studio) -> None:
    studio.open("explore", type="Team", id="storage")
    wait_until(lambda: counts(studio)[0] == 1, "the node")
    canvas = studio.find(".graph-canvas")
    ActionChains(studio.driver).move_to_element(canvas).click().perform()
    studio.find(".node-panel", "Storage")
    ActionChains(studio.driver).move_to_element(canvas).double_click().perform()
    wait_until(lambda: counts(studio) == (14, 13), "the neighbors")


def test_types_are_styled_and_hidden(studio: Studio) -> None:
    studio.open("explore", type="Team", x="Team/storage")
    wait_until(lambda: counts(studio)[0] == 19, "the picture")
    studio.choose("select[aria-label='Label of Person']", "handle")
    studio.find(".node-list button", "beneng")
    studio.click(".type-styles .check", "Person")
    wait_until(lambda: counts(studio)[0] == 11, "the picture without people")


def test_picture_of_2_000_nodes_settles(studio: Studio) -> None:
    studio.open("explore", "large", type="Item", limit="2000")
    studio.find(".graph-canvas[data-settled]")
    assert counts(studio)[0] == 2_000
    assert counts(studio)[1] > 2_000
    studio.click("[data-tab=table]")
    assert studio.cells()[0] == "Item"
