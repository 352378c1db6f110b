"""Serving a cluster: only the applied revision, verified, and the next one without a failed request."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import omnigraph as og
from omnigraph.cluster.applying.apply import apply
from omnigraph.cluster.applying.approve import approve
from omnigraph.cluster.applying.rollback import rollback
from omnigraph.cluster.diagnostics import ClusterFailure
from omnigraph.cluster.ledger.intents import Intent, write_intent
from omnigraph.cluster.ledger.state import STATE_KEY, AppliedResource, ClusterState
from omnigraph.cluster.ledger.storage import payload_key
from omnigraph.cluster.serving.applied_revision import read_applied_revision
from omnigraph.cluster.serving.served_cluster import ServedCluster, find_cluster_root, read_hosting_at
from omnigraph.errors import InvalidInput
from omnigraph.server.hosted_graphs import ServerResources, open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from omnigraph.server.reload import Reloader
from tests.cli.running import ROOT, run, serving
from tests.cluster_control.cluster_files import (
    CONFIG,
    HIRE,
    OLDER,
    POLICY,
    QUERY,
    SCHEMA,
    WIDER,
    ClusterFolder,
)
from tests.server.running import TOKENS, running
from tests.support.waiting import HANG, wait_until

KNOWN = TokenRegistry.of(TOKENS)
SERVER = {"server": CONFIG["policies"]["server"]}
PEOPLE = [{"name": "Ann", "age": 50}, {"name": "Bob", "age": 30}]


def open_cluster(cluster: ClusterFolder, **options: Any) -> ServerResources:
    return open_graphs(read_applied_revision(cluster.root, cluster.options), KNOWN, **options)


def reloader(cluster: ClusterFolder, resources: ServerResources) -> Reloader:
    return Reloader(resources, lambda: read_applied_revision(cluster.root, cluster.options), lambda: KNOWN)


def reload(cluster: ClusterFolder, resources: ServerResources) -> None:
    reloader(cluster, resources).prepare()()


def state(cluster: ClusterFolder) -> ClusterState:
    return cluster.storage.read_state().or_empty


def store(cluster: ClusterFolder, changed: ClusterState) -> None:
    cluster.storage.objects.put(STATE_KEY, changed.to_bytes())


def change_resource(cluster: ClusterFolder, address: str, **members: Any) -> None:
    present = state(cluster)
    store(cluster, present.with_resources({address: replace(present.resources[address], **members)}))


def remove_resource(cluster: ClusterFolder, address: str) -> None:
    store(cluster, state(cluster).with_resources({address: None}))


def names(client: httpx.Client) -> list[str]:
    response = client.post("/queries/all", json={})
    assert response.status_code == 200, response.text
    return [row["name"] for row in response.json()["rows"]]


# --- what is served ----------------------------------------------------------------------------------------


def test_only_the_applied_revision_is_served_and_its_schema_is_managed(applied: ClusterFolder) -> None:
    with og.open(applied.storage.graph_uri("team")) as graph:
        graph.load({"Person": PEOPLE})
    # None of these edits is applied.
    applied.write("queries/all.gq", OLDER)
    applied.write("base.policy.yaml", {"version": 1})
    applied.configure(graphs={"other": {"schema": "team.pg"}}, policies=None)
    resources = open_cluster(applied)
    with running(resources) as server:
        with server.client("ann") as client:
            assert names(client) == ["Ann", "Bob"]
            body = {"schema_source": WIDER}
            response = client.post("/schema/apply", json=body)
            # Ann may not, and does not learn more.
            assert response.status_code == 403
        with server.client("ann", prefix="") as client:
            assert [item["graph_id"] for item in client.get("/graphs").json()["graphs"]] == ["team"]
        with server.client("eve") as client:
            assert client.post("/queries/all", json={}).status_code in (403, 404)
    resources.close()


def test_schema_apply_on_a_managed_graph_is_refused_with_409(applied: ClusterFolder) -> None:
    allow = {"actors": {"group": "team"}, "actions": ["schema_apply"]}
    applied.write(
        "base.policy.yaml", {**POLICY, "rules": [*POLICY["rules"], {"id": "schema", "allow": allow}]}
    )
    assert apply(applied.path).converged
    resources = open_cluster(applied)
    with running(resources) as server, server.client("ann") as client:
        response = client.post("/schema/apply", json={"schema_source": WIDER})
    assert response.status_code == 409
    assert "omnigraph cluster apply" in response.json()["hint"]
    assert state(applied).digests == state(applied).digests
    resources.close()


def test_vanished_graph_is_quarantined_and_never_created(applied: ClusterFolder) -> None:
    applied.write("other.pg", "node Thing { code: String @key }")
    applied.configure(graphs={**CONFIG["graphs"], "other": {"schema": "other.pg"}})
    assert apply(applied.path).converged
    applied.storage.graph_objects("other").delete_tree()
    resources = open_cluster(applied)
    assert list(resources.graphs) == ["team"]
    assert "there is no graph" in resources.quarantined["other"]
    assert not applied.storage.graph_objects("other").exists_any()
    resources.close()
    with pytest.raises(InvalidInput, match="not every graph can be served"):
        open_cluster(applied, require_all=True)
    applied.storage.graph_objects("team").delete_tree()
    with pytest.raises(InvalidInput, match="cluster_no_healthy_graphs"):
        open_cluster(applied)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda c: c.storage.objects.delete(STATE_KEY), "cluster_state_missing"),
        (lambda c: c.storage.objects.put(STATE_KEY, b"{"), "cluster_state_missing"),
        (lambda c: store(c, ClusterState(1)), "cluster_empty"),
        (
            lambda c: c.storage.objects.put("__cluster/recoveries/x.json", b"{"),
            "cluster_recovery_unattributed",
        ),
        (
            lambda c: c.storage.objects.delete(
                payload_key("query.team.all", state(c).digests["query.team.all"])
            ),
            "catalog_payload_missing",
        ),
        (
            lambda c: c.storage.write_payload("policy.base", state(c).digests["policy.base"], b"version: 1"),
            "catalog_payload_digest_mismatch",
        ),
        (lambda c: change_resource(c, "policy.base", applies_to=None), "policy_bindings_missing"),
        (lambda c: change_resource(c, "policy.server", applies_to=("graph.team",)), "policy_invalid"),
        (
            lambda c: store(c, state(c).with_resources({"policy.second": state(c).resources["policy.base"]})),
            "catalog_payload_missing",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_cluster_is_not_served(
    applied: ClusterFolder, damage: Callable[[ClusterFolder], None], code: str
) -> None:
    damage(applied)
    with pytest.raises(ClusterFailure) as caught:
        open_cluster(applied)
    assert caught.value.diagnostics[0].code == code
    assert caught.value.message.startswith(f"{code}: ")


def test_two_bundles_of_one_graph_are_not_served(applied: ClusterFolder) -> None:
    base = state(applied).resources["policy.base"]
    data = applied.storage.read_payload("policy.base", base.digest)
    applied.storage.write_payload("policy.second", base.digest, data)
    store(applied, state(applied).with_resources({"policy.second": base}))
    with pytest.raises(ClusterFailure, match="duplicate_policy_binding"):
        open_cluster(applied)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda c: remove_resource(c, "provider.embedding.default"), "embedding_provider_missing"),
        (
            lambda c: change_resource(c, "provider.embedding.default", embedding_profile=None),
            "embedding_provider_profile_missing",
        ),
        (
            lambda c: change_resource(c, "provider.embedding.default", embedding_profile={"kind": "openai"}),
            "embedding_provider_digest_mismatch",
        ),
        (
            lambda c: change_resource(
                c,
                "graph.team",
                external_blob_policy={
                    "mode": "allow",
                    "bases": [{"uri": "s3://elsewhere/", "scope": "server_safe"}],
                },
            ),
            "external_blob_policy_digest_mismatch",
        ),
        (
            lambda c: write_intent(
                c.storage, Intent.begin("schema_apply", c.storage, "team", actor=None, cas=None)
            ),
            "interrupted schema_apply",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_trouble_of_one_graph_quarantines_it(
    applied: ClusterFolder, damage: Callable[[ClusterFolder], None], code: str
) -> None:
    damage(applied)
    resources = open_cluster(applied, allow_none=True)
    assert resources.graphs == {}
    assert code in resources.quarantined["team"]


def test_graph_whose_id_is_no_path_segment_is_quarantined(applied: ClusterFolder) -> None:
    applied.configure(graphs={**CONFIG["graphs"], "my_graph": {"schema": "team.pg"}})
    assert apply(applied.path).converged
    resources = open_cluster(applied)
    assert "is not a graph id" in resources.quarantined["my_graph"]
    resources.close()


def test_root_of_a_cluster_is_found_from_its_folder_file_or_storage(
    applied: ClusterFolder, tmp_path: Path
) -> None:
    root = str(applied.path)
    assert find_cluster_root(applied.path) == root
    assert find_cluster_root(applied.path / "cluster.yaml") == root
    assert find_cluster_root("s3://bucket/company") == "s3://bucket/company"
    assert find_cluster_root(tmp_path) is None
    applied.write("cluster.yaml", "version: [")
    assert find_cluster_root(applied.path) == root
    (tmp_path / "site.yaml").write_text("graphs: {}")
    assert find_cluster_root(tmp_path / "site.yaml") is None
    assert read_hosting_at(tmp_path / "site.yaml").graphs == ()
    outcome = run("serve", "--cluster", str(tmp_path), "--unauthenticated")
    assert (outcome.code, "cluster_state_missing" in outcome.stderr) == (1, True)


# --- the next revision -------------------------------------------------------------------------------------


def test_reload_serves_the_next_revision(applied: ClusterFolder) -> None:
    with og.open(applied.storage.graph_uri("team")) as graph:
        graph.load({"Person": PEOPLE})
    resources = open_cluster(applied)
    handle = resources.graphs["team"].graph
    with running(resources) as server, server.client("ann") as ann, server.client("dan") as dan:
        assert (names(ann), dan.post("/queries/all", json={}).status_code) == (["Ann", "Bob"], 404)
        applied.write("queries/all.gq", OLDER)
        applied.write("queries/hire.gq", HIRE)
        applied.write("base.policy.yaml", {**POLICY, "groups": {"team": ["ann", "dan"]}})
        applied.write("other.pg", "node Thing { code: String @key }")
        applied.configure(graphs={**CONFIG["graphs"], "other": {"schema": "other.pg"}})
        assert apply(applied.path).converged
        reload(applied, resources)
        assert (names(ann), names(dan)) == (["Ann"], ["Ann"])
        assert ann.post("/queries/hire", json={"params": {"n": "Cy"}}).status_code == 200
        assert resources.graphs["team"].graph is handle
        assert set(resources.graphs) == {"team", "other"}
        assert b'omnigraph_graphs{state="served"} 2.0' in server.app.state.metrics.render()
        assert rollback(applied.path, 2).ok
        reload(applied, resources)
        assert names(ann) == ["Ann", "Bob", "Cy"]
        applied.configure(policies={**CONFIG["policies"]})
        assert approve(applied.path, "graph.other", "ann").ok
        assert apply(applied.path).converged
        reload(applied, resources)
        assert set(resources.graphs) == {"team"}
    resources.close()


def test_reload_of_an_invalid_revision_keeps_the_old_one(applied: ClusterFolder) -> None:
    with og.open(applied.storage.graph_uri("team")) as graph:
        graph.load({"Person": PEOPLE})
    resources = open_cluster(applied)
    with running(resources) as server, server.client("ann") as client:
        applied.write("queries/all.gq", OLDER)
        assert apply(applied.path).converged
        digest = state(applied).digests["query.team.all"]
        applied.storage.write_payload("query.team.all", digest, QUERY.encode())
        with pytest.raises(ClusterFailure, match="catalog_payload_digest_mismatch"):
            reload(applied, resources)
        assert names(client) == ["Ann", "Bob"]
        applied.storage.write_payload("query.team.all", digest, OLDER.encode())
        reload(applied, resources)
        assert names(client) == ["Ann"]
    resources.close()


def test_reload_opens_a_graph_with_other_external_blobs_again(applied: ClusterFolder) -> None:
    resources = open_cluster(applied)
    before = resources.graphs["team"].graph
    allow = {"allow": [{"base": "s3://assets/", "scope": "server_safe"}]}
    applied.configure(graphs={"team": {**CONFIG["graphs"]["team"], "external_blobs": allow}})
    assert apply(applied.path).converged
    reload(applied, resources)
    after = resources.graphs["team"].graph
    assert after is not before
    assert [base.uri for base in after.external_blobs.bases] == ["s3://assets/"]
    # A request that began before still reads.
    assert before.authorized_view(None, frozenset(), None).schema.source() == SCHEMA
    resources.close()


def test_operation_that_is_just_ending_does_not_interrupt_a_served_graph(applied: ClusterFolder) -> None:
    resources = open_cluster(applied)
    followed = ServedCluster(applied.root)
    followed.read()
    before = followed.fingerprint()
    intent = Intent.begin("schema_apply", applied.storage, "team", actor=None, cas=None)
    write_intent(applied.storage, intent)
    reload(applied, resources)
    assert list(resources.graphs) == ["team"]
    followed.read()
    pending = followed.fingerprint()
    assert pending != before
    applied.storage.objects.delete(intent.key)
    assert followed.fingerprint() != pending
    resources.close()


@contextmanager
def asking(url: str, token: str, path: str) -> Iterator[Callable[[], list[int]]]:
    """Send requests until the context ends. The function returns the statuses so far."""
    statuses: list[int] = []
    is_over = threading.Event()

    def ask() -> None:
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=url, headers=headers, timeout=HANG, verify=False) as client:
            while not is_over.is_set():
                statuses.append(client.post(path, json={}).status_code)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: list(statuses)
    finally:
        is_over.set()
        for thread in threads:
            thread.join(HANG)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_running_server_follows_an_applied_revision_without_a_failed_request(
    applied: ClusterFolder, workers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with og.open(applied.storage.graph_uri("team")) as graph:
        graph.load({"Person": PEOPLE})
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps({"ann": TOKENS["ann"], "dan": TOKENS["dan"]}))
    for name, value in {
        "SERVER_BEARER_TOKENS_FILE": str(tokens),
        "WORKERS": workers,
        "FOLLOW_SECONDS": "0.05",
        "HOME": str(tmp_path / "home"),
    }.items():
        monkeypatch.setenv(f"OMNIGRAPH_{name}", value)
    with serving("--cluster", str(applied.path)) as address:
        url = f"http://{address}/graphs/team"

        def ask(actor: str) -> httpx.Response:
            headers = {"Authorization": f"Bearer {TOKENS[actor]}"}
            return httpx.post(f"{url}/queries/all", json={}, headers=headers, timeout=HANG, verify=False)

        with asking(url, TOKENS["ann"], "/queries/all") as statuses:
            assert len(ask("ann").json()["rows"]) == 2
            assert ask("dan").status_code == 404
            applied.write("queries/all.gq", OLDER)
            applied.write("base.policy.yaml", {**POLICY, "groups": {"team": ["ann", "dan"]}})
            applied.write("team.pg", WIDER)
            assert apply(applied.path).converged
            wait_until(lambda: {len(ask("dan").json().get("rows", [1, 2])) for _ in range(8)} == {1})
            asked = len(statuses())
            wait_until(lambda: len(statuses()) > asked + 20)
        assert set(statuses()) == {200}
        # A new token file is read without a signal.
        tokens.write_text(json.dumps({"dan": TOKENS["dan"]}))
        wait_until(lambda: {ask("ann").status_code for _ in range(8)} == {401})


def test_cluster_goes_from_nothing_to_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    shutil.copytree(ROOT / "examples" / "cluster", tmp_path / "company")
    monkeypatch.chdir(tmp_path / "company")
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    for command in (["validate"], ["import"], ["plan"], ["apply", "--as", "act-ann"]):
        outcome = run("cluster", *command)
        assert outcome.code == 0, outcome.output
    tokens = {"act-ann": TOKENS["ann"], "act-bob": TOKENS["bob"]}
    monkeypatch.setenv("OMNIGRAPH_SERVER_BEARER_TOKENS_JSON", json.dumps(tokens))
    with serving("--cluster", ".", "--require-all-graphs", "--workers", "1") as address:
        headers = {"Authorization": f"Bearer {TOKENS['ann']}"}
        with httpx.Client(
            base_url=f"http://{address}", headers=headers, timeout=HANG, verify=False
        ) as client:
            assert client.get("/graphs").json()["graphs"][0]["graph_id"] == "knowledge"
            url = "/graphs/knowledge/queries"
            params = {"slug": "a", "title": "A plan"}
            assert client.post(f"{url}/add_document", json={"params": params}).status_code == 200
            rows = client.post(f"{url}/documents", json={}).json()["rows"]
            assert rows == [{"slug": "a", "title": "A plan"}]
    outcome = run("queries", "list", "--cluster", ".")
    assert outcome.stdout.startswith("read  about($topic: String)")
    outcome = run("policy", "validate", "--cluster", ".", "--graph", "knowledge")
    assert outcome.stdout == "policy valid: bundle 'knowledge' [2 actors]\n"
    outcome = run("optimize", "--cluster", ".", "--graph", "knowledge", "--json")
    assert outcome.code == 0


def test_resource_of_an_unused_provider_is_no_graph(applied: ClusterFolder) -> None:
    resource = AppliedResource("x", embedding_profile={"kind": "mock"})
    store(applied, state(applied).with_resources({"provider.embedding.spare": resource}))
    assert [source.id for source in read_applied_revision(applied.root).graphs] == ["team"]
