"""The configuration of a cluster: every problem of `cluster.yaml` and its files has a code and a place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.cluster.applying.apply import check_unchanged
from omnigraph.cluster.commands import validate
from omnigraph.cluster.configuration.read_configuration import load_configuration
from omnigraph.cluster.diagnostics import ClusterFailure
from tests.cluster_control.cluster_files import (
    CONFIG,
    LISTING,
    POLICY,
    QUERY,
    SCHEMA,
    ClusterFolder,
    codes,
    find,
)

TEAM = CONFIG["graphs"]["team"]
BASE = CONFIG["policies"]["base"]


def team(**members: Any) -> dict[str, Any]:
    return {"graphs": {"team": {**TEAM, **members}}}


def provider(**members: Any) -> dict[str, Any]:
    return {"providers": {"embedding": {"default": members}}}


def policy(**members: Any) -> dict[str, Any]:
    return {"policies": {"base": {**BASE, **members}}}


def test_validate_lists_resources_digests_and_dependencies(cluster: ClusterFolder) -> None:
    report = validate(cluster.path)
    assert report.ok
    document = report.to_json()
    assert list(document) == [
        "ok",
        "config_dir",
        "config_file",
        "resource_digests",
        "resources",
        "dependencies",
        "diagnostics",
    ]
    assert [item["address"] for item in document["resources"]] == [
        "provider.embedding.default",
        "graph.team",
        "schema.team",
        "query.team.all",
        "policy.base",
        "policy.server",
    ]
    assert document["resources"][2]["path"] == str(cluster.path / "team.pg")
    assert {"from": "query.team.all", "to": "schema.team"} in document["dependencies"]
    assert {"from": "graph.team", "to": "provider.embedding.default"} in document["dependencies"]
    assert not any(item["to"] == "cluster" for item in document["dependencies"])


def test_digests_are_those_of_the_stored_format(cluster: ClusterFolder) -> None:
    from hashlib import sha256

    def hexed(*parts: str) -> str:
        return sha256("".join(parts).encode()).hexdigest()

    cluster.configure(
        policies=None, providers=None, graphs={"team": {"schema": "team.pg", "queries": "queries"}}
    )
    digests = validate(cluster.path).to_json()["resource_digests"]
    schema, query = hexed(SCHEMA), hexed(QUERY)
    assert digests == {
        "graph.team": hexed("graph\0team\0schema\0", schema, "\0query\0all\0", query, "\0"),
        "schema.team": schema,
        "query.team.all": query,
    }
    cluster.configure(**provider(kind="openai", model="m", api_key="${KEY}"))
    digests = validate(cluster.path).to_json()["resource_digests"]
    profile = hexed('embedding-provider\0{"api_key":"${KEY}","kind":"openai","model":"m"}')
    assert digests["provider.embedding.default"] == profile
    assert digests["graph.team"] == hexed(
        "graph\0team\0schema\0", schema, "\0query\0all\0", query, "\0",
        "embedding_provider\0provider.embedding.default\0", profile, "\0",
    )  # fmt: skip


def test_config_digest_ignores_comments_and_key_order(cluster: ClusterFolder) -> None:
    before = load_configuration(cluster.path).require().digest
    text = (cluster.path / "cluster.yaml").read_text()
    cluster.write("cluster.yaml", "# a comment\n" + text)
    assert load_configuration(cluster.path).require().digest == before
    cluster.configure(metadata={"name": "another"})
    assert load_configuration(cluster.path).require().digest != before


@pytest.mark.parametrize(
    ("members", "code", "path"),
    [
        ({"version": 2}, "unsupported_cluster_config_version", "version"),
        ({"version": True}, "unsupported_cluster_config_version", "version"),
        ({"version": None}, "unsupported_cluster_config_version", "version"),
        ({"grahps": {}}, "invalid_cluster_yaml", "grahps"),
        ({"graphs": []}, "invalid_cluster_yaml", "graphs"),
        ({"pipelines": {}}, "future_phase_field", "pipelines"),
        ({"ui": {}}, "future_phase_field", "ui"),
        (team(streaming=True), "removed_streaming_declaration", "graphs.team.streaming"),
        ({"metadata": {"name": " "}}, "empty_metadata_name", "metadata.name"),
        ({"storage": ""}, "invalid_storage_root", "storage"),
        ({"storage": "~/data"}, "invalid_storage_root", "storage"),
        ({"storage": "ftp://host/data"}, "invalid_storage_root", "storage"),
        ({"state": {"backend": "consul"}}, "unsupported_state_backend", "state.backend"),
        ({"state": {"lock": "yes"}}, "invalid_cluster_yaml", "state.lock"),
        ({"graphs": {"1st": TEAM}, "policies": None}, "invalid_resource_id", "graphs.1st"),
        (team(schema="gone.pg"), "schema_file_missing", "graphs.team.schema"),
        ({"graphs": {"team": {}}}, "invalid_cluster_yaml", "graphs.team.schema"),
        (team(queries="gone/"), "query_dir_unreadable", "graphs.team.queries"),
        (team(queries=["gone.gq"]), "query_file_missing", "graphs.team.queries"),
        (team(queries=["queries/all.gq", "copy.gq"]), "duplicate_query_name", "query.team.all"),
        (
            team(queries={"other": {"file": "queries/all.gq"}}),
            "query_key_mismatch",
            "graphs.team.queries.other",
        ),
        (team(queries={"all": {}}), "invalid_cluster_yaml", "graphs.team.queries.all.file"),
        (
            team(embedding_provider="none"),
            "dangling_embedding_provider_reference",
            "graphs.team.embedding_provider",
        ),
        (team(embedding_provider="policy.base"), "wrong_kind_reference", "graphs.team.embedding_provider"),
        (team(external_blobs={"deny": []}), "invalid_external_blob_policy", "graphs.team.external_blobs"),
        (
            team(external_blobs={"allow": [{"base": "s3://assets/k", "scope": "server_safe"}]}),
            "invalid_external_blob_base",
            "graphs.team.external_blobs",
        ),
        (provider(kind="word2vec"), "invalid_embedding_provider", "providers.embedding.default.kind"),
        (provider(kind="openai"), "embedding_api_key_required", "providers.embedding.default.api_key"),
        (
            provider(kind="openai", api_key="s3cret"),
            "embedding_api_key_inline",
            "providers.embedding.default.api_key",
        ),
        (policy(file="gone.yaml"), "policy_file_missing", "policies.base.file"),
        (policy(file="team.pg"), "policy_invalid", "policies.base.file"),
        (policy(file="server.policy.yaml"), "policy_invalid", "policies.base.file"),
        (policy(applies_to=[]), "policy_missing_applies_to", "policies.base.applies_to"),
        (policy(applies_to=["gone"]), "dangling_graph_reference", "policies.base.applies_to"),
        (policy(applies_to=["schema.team"]), "wrong_kind_reference", "policies.base.applies_to"),
        (policy(applies_to=["team", "cluster"]), "policy_mixed_binding_kinds", "policies.base.applies_to"),
        (policy(applies_to=["team", "graph.team"]), "duplicate_policy_binding", "policies.base.applies_to"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_validate_invalid_configuration_reports_code_and_place(
    cluster: ClusterFolder, members: dict[str, Any], code: str, path: str
) -> None:
    cluster.write("copy.gq", QUERY)
    cluster.configure(**members)
    report = validate(cluster.path)
    assert not report.ok
    found = [item for item in report.diagnostics if item.code == code]
    assert [item.path for item in found] == [path], report.diagnostics
    assert "s3cret" not in str(report.to_json())


@pytest.mark.parametrize(
    ("files", "code", "path"),
    [
        ({"cluster.yaml": "version: [1"}, "invalid_cluster_yaml", None),
        ({"cluster.yaml": "version: 1\ngraphs: {}\ngraphs: {}\n"}, "duplicate_yaml_key", "graphs"),
        ({"team.pg": "node {"}, "schema_parse_error", "graphs.team.schema"),
        ({"team.pg": SCHEMA + SCHEMA}, "schema_catalog_error", "graphs.team.schema"),
        ({"queries/all.gq": "query {"}, "query_parse_error", "graphs.team.queries"),
        ({"queries/all.gq": QUERY.replace("Person", "Cat")}, "query_typecheck_error", "query.team.all"),
        ({"base.policy.yaml": {**POLICY, "version": 2}}, "policy_invalid", "policies.base.file"),
        ({"server.policy.yaml": POLICY}, "policy_invalid", "policies.server.file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_validate_invalid_file_reports_code_and_place(
    cluster: ClusterFolder, files: dict[str, Any], code: str, path: str | None
) -> None:
    for name, content in files.items():
        cluster.write(name, content)
    finding = next(item for item in validate(cluster.path).diagnostics if item.code == code)
    assert finding.severity == "error"
    assert finding.path == (path or str(cluster.path / "cluster.yaml"))


def test_validate_two_policies_of_one_graph_is_an_error(cluster: ClusterFolder) -> None:
    cluster.configure(policies={"a": BASE, "b": BASE})
    assert codes(validate(cluster.path)) == ["duplicate_policy_binding"]
    cluster.write("two.policy.yaml", LISTING)
    shared = {"file": "two.policy.yaml", "applies_to": ["cluster"]}
    cluster.configure(policies={"a": shared, "b": shared})
    assert codes(validate(cluster.path)) == ["duplicate_policy_binding"]


def test_validate_without_folder_or_file_says_so(tmp_path: Path) -> None:
    assert codes(validate(tmp_path / "gone")) == ["config_dir_not_found"]
    report = validate(tmp_path)
    assert codes(report) == ["cluster_config_read_error"]
    assert report.to_json()["resources"] == []


def test_validate_warnings_keep_the_configuration_valid(cluster: ClusterFolder) -> None:
    (cluster.path / "empty").mkdir()
    cluster.configure(**team(queries="empty"))
    report = validate(cluster.path)
    assert report.ok
    assert find(report, "query_dir_empty").severity == "warning"
    cluster.configure()
    cluster.write("team.pg", "node Person { name: String @key  photo: Blob? }")
    report = validate(cluster.path)
    assert report.ok
    assert find(report, "external_blob_ingress_default_deny").path == "graphs.team.external_blobs"


def test_validate_queries_of_a_broken_schema_are_skipped_with_a_warning(cluster: ClusterFolder) -> None:
    cluster.write("team.pg", "node {")
    assert find(validate(cluster.path), "query_typecheck_skipped").path == "query.team.all"


def test_storage_is_relative_to_the_configuration(cluster: ClusterFolder) -> None:
    cluster.configure(storage="data")
    assert load_configuration(cluster.path).require().storage == str(cluster.path / "data")
    cluster.configure(storage="s3://bucket/prefix/")
    assert (
        load_configuration(cluster.path).require().graph_uri("team") == "s3://bucket/prefix/graphs/team.omni"
    )


def test_file_that_changes_after_it_was_read_is_an_error(cluster: ClusterFolder) -> None:
    configuration = load_configuration(cluster.path).require()
    check_unchanged(configuration)
    cluster.write("queries/all.gq", QUERY + "\n")
    with pytest.raises(ClusterFailure, match="resource_content_changed"):
        check_unchanged(configuration)
