"""The landing page, the API reference, and the answer to routes of earlier versions."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import httpx
import pytest

from omnigraph import __version__
from tests.server.running import Running, error_body
from tests.support.waiting import HANG

LOADING = {"script", "img", "iframe", "link", "object", "embed", "video", "audio", "form", "base"}


class Page(HTMLParser):
    """The ids, links, tags and styles of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.add(tag)
        self.attributes |= set(found)
        self.ids |= {found["id"] or ""} if "id" in found else set()
        self.links |= {found["href"] or ""} if "href" in found else set()


def get(server: Running, path: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{server.url}{path}", headers=headers, timeout=HANG, verify=False)


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_page_loads_nothing_and_runs_no_script(guarded: Running, path: str) -> None:
    found = get(guarded, path, Accept="text/html,*/*;q=0.8")
    assert found.status_code == 200
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    page = Page(found.text)
    assert page.tags.isdisjoint(LOADING)
    assert not {name for name in page.attributes if name.startswith("on") or name in ("src", "style")}
    assert all(link.startswith(("/", "#")) for link in page.links)
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    (style,) = re.findall(r"<style>(.*?)</style>", found.text, re.DOTALL)
    assert base64.b64encode(hashlib.sha256(style.encode()).digest()).decode() in policy
    assert not re.search(r"url\(|@import|https?://", style)


def test_api_reference_has_every_operation_and_component(guarded: Running) -> None:
    document = get(guarded, "/openapi.json").json()
    page = Page(get(guarded, "/docs").text)
    operations = {item["operationId"] for methods in document["paths"].values() for item in methods.values()}
    assert operations | set(document["components"]["schemas"]) <= page.ids
    assert {link[1:] for link in page.links if link.startswith("#")} <= page.ids


def test_root_is_json_unless_html_is_accepted(guarded: Running) -> None:
    found = get(guarded, "/")
    assert found.json() == {
        "name": "OmniGraph",
        "version": __version__,
        "documentation": "/docs",
        "openapi": "/openapi.json",
        "graphs": "/graphs",
        "health": "/healthz",
    }
    assert "Accept" in found.headers["vary"]


@pytest.mark.parametrize(
    "path",
    ["/query", "/mutate", "/branches", "/branches/merge", "/commits/01J", "/schema/apply", "/load/ndjson"],
)
def test_route_without_graph_says_where_it_moved(guarded: Running, path: str) -> None:
    body = error_body(get(guarded, path), 404)
    assert body["error"] == f"'{path}' has moved to '/graphs/{{graph_id}}{path}'"
    assert "GET /graphs" in body["hint"]


@pytest.mark.parametrize("path", ["/nothing", "/graphs/team/nothing", "/query/nothing"])
def test_unknown_path_is_not_found(guarded: Running, path: str) -> None:
    assert error_body(get(guarded, path), 404)["error"] == "Not Found"
