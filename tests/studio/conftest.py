"""One browser and one server for all tests of the Studio. The server has tokens and a policy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from selenium.webdriver import Chrome

from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.api.hosting.stored_queries import QuerySources
from omnigraph.server.hosted_graphs import open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from tests.server.running import Running, bundle, running
from tests.studio.browser import DESKTOP, Studio, browsing
from tests.studio.sample import QUERIES, make_company, make_large

TOKENS = {"ann": "token-of-ann", "rex": "token-of-rex"}
# Ann may do everything. Rex may read and run queries.
POLICY = {
    "version": 1,
    "groups": {"admins": ["ann"], "readers": ["ann", "rex"]},
    "rules": [
        {"id": "read", "allow": {"actors": {"group": "readers"}, "actions": ["read", "invoke_query"]}},
        {"id": "write", "allow": {"actors": {"group": "admins"}, "actions": ["change", "export", "admin"]}},
        {
            "id": "branches",
            "allow": {
                "actors": {"group": "admins"},
                "actions": ["schema_apply", "branch_create", "branch_delete", "branch_merge"],
            },
        },
    ],
}
SERVER_POLICY = {
    "version": 1,
    "groups": {"all": ["ann", "rex"]},
    "rules": [{"id": "list", "allow": {"actors": {"group": "all"}, "actions": ["graph_list"]}}],
}


@pytest.fixture(scope="session")
def browser() -> Iterator[Chrome]:
    """Return the browser."""
    with browsing() as found:
        yield found


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Return the server, with the graphs `company` and `large`. Tests that write use branches of their own."""
    folder = tmp_path_factory.mktemp("studio")
    (folder / "company.gq").write_text(QUERIES, encoding="utf-8")
    company, large = (f"memory://studio-{uuid4().hex}" for _ in range(2))
    make_company(company)
    make_large(large)
    sources = (
        GraphSource("company", company, QuerySources((folder,)), bundle(POLICY)),
        GraphSource("large", large, None, bundle(POLICY)),
    )
    hosted = open_graphs(Hosting(sources, bundle(SERVER_POLICY)), TokenRegistry.of(TOKENS))
    with running(hosted, studio=True) as found:
        yield found
    hosted.close()


@pytest.fixture
def signed_out(browser: Chrome, served: Running) -> Iterator[Studio]:
    """Return the Studio without a token. A test fails if the console has errors."""
    studio = Studio(browser, served.url)
    studio.resize(DESKTOP)
    studio.use_theme("light")
    browser.get(f"{served.url}/studio/licenses.txt")
    studio.run("sessionStorage.clear(); localStorage.clear()")
    studio.problems()
    yield studio
    assert studio.problems() == []


@pytest.fixture
def studio(signed_out: Studio) -> Studio:
    """Return the Studio with the token of Ann, who may do everything."""
    signed_out.run("sessionStorage.setItem('omnigraph-token', arguments[0])", TOKENS["ann"])
    return signed_out


@pytest.fixture
def reader(signed_out: Studio) -> Studio:
    """Return the Studio with the token of Rex, who may only read."""
    signed_out.run("sessionStorage.setItem('omnigraph-token', arguments[0])", TOKENS["rex"])
    return signed_out


@pytest.fixture(scope="session")
def assets() -> Path:
    """Return the folder of the built files."""
    return Path(__file__).parents[2] / "src" / "omnigraph" / "studio" / "assets"
