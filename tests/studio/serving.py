"""The server of the Studio tests and screenshots, with tokens and a policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.api.hosting.stored_queries import QuerySources
from omnigraph.server.hosted_graphs import open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from tests.server.running import Running, bundle, running
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


@contextmanager
def serving(folder: Path) -> Iterator[Running]:
    """Serve the graphs `company` and `large` while the context is open. `folder` gets the stored queries."""
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
