"""The external-blob policy: which bases are valid, and which URIs are below them."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import InvalidInput
from omnigraph.rules.external_blobs import ExternalBlobPolicy, read_policy_member

BASE = "s3://assets/k/"
ALLOWED = ExternalBlobPolicy.of([BASE, "https://cdn.example.org/pictures/", "file:///srv/blobs/"])


@pytest.mark.parametrize(
    "uri", ["s3://assets/k/a", "s3://assets/k/a b/ü.png", "https://cdn.example.org/pictures/a%20b.png"]
)
def test_refusal_uri_below_base_is_none(uri: str) -> None:
    assert ALLOWED.refusal(uri) is None


@pytest.mark.parametrize(
    "uri",
    [
        "s3://assets/k",
        "s3://assets/k/",
        "s3://assets/kk/a",
        "s3://assets/other/a",
        "s3://assets.evil/k/a",
        "https://cdn.example.org.evil.example/pictures/a",
        "http://cdn.example.org/pictures/a",
    ],
)
def test_refusal_uri_outside_bases_names_uri(uri: str) -> None:
    reason = ALLOWED.refusal(uri)
    assert reason is not None
    assert uri in reason


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "hello",
        "javascript:alert(1)",
        "data:text/html,x",
        "//cdn.example.org/pictures/a",
        "S3://assets/k/a",
        "s3://assets/k/../secret",
        "s3://assets/k/./a",
        "s3://assets/k//a",
        "s3://assets/k/%2e%2e/secret",
        "s3://assets/k/..%2Fsecret",
        "s3://assets/k/..\\secret",
        "s3://user:pass@assets/k/a",
        "https://cdn.example.org@evil.example/pictures/a",
        "https://cdn.example.org/pictures/a?redirect=evil",
        "https://cdn.example.org/pictures/a#x",
        "s3://assets/k/a\r\nSet-Cookie: x",
        "s3://assets/k/" + "a" * 3_000,
        "file://host/srv/blobs/a",
    ],
)
def test_refusal_malformed_uri_says_why(uri: str) -> None:
    reason = ALLOWED.refusal(uri)
    assert reason is not None
    assert "pass" not in reason
    assert len(reason) < 400


@given(st.text())
def test_refusal_without_bases_refuses_any_text(text: str) -> None:
    assert ExternalBlobPolicy().refusal(text) is not None


def test_server_safe_leaves_out_local_bases() -> None:
    assert ALLOWED.refusal("file:///srv/blobs/a") is None
    assert ALLOWED.server_safe.refusal("file:///srv/blobs/a") is not None
    assert ALLOWED.server_safe.refusal("s3://assets/k/a") is None


@pytest.mark.parametrize(
    ("bases", "code"),
    [
        (["s3://assets/k"], "invalid_external_blob_base"),
        (["ftp://assets/k/"], "invalid_external_blob_base"),
        (["s3://key:secret@assets/"], "invalid_external_blob_base"),
        (["s3://assets/../k/"], "invalid_external_blob_base"),
        (["https://h/k/?x/"], "invalid_external_blob_base"),
        (["/srv/blobs/"], "invalid_external_blob_base"),
        ([{"base": "file:///srv/", "scope": "server_safe"}], "invalid_external_blob_base"),
        ([{"base": BASE, "scope": "embedded_only"}], "invalid_external_blob_base"),
        ([{"base": BASE, "scope": "everywhere"}], "invalid_external_blob_policy"),
        ([{"base": BASE, "mode": "x"}], "invalid_external_blob_policy"),
        ([7], "invalid_external_blob_policy"),
        ([BASE, "s3://assets/k/inner/"], "invalid_external_blob_policy"),
        ([BASE, BASE], "invalid_external_blob_policy"),
        (BASE, "invalid_external_blob_policy"),
    ],
)
def test_policy_invalid_base_is_refused_with_code(bases: Any, code: str) -> None:
    with pytest.raises(InvalidInput) as error:
        ExternalBlobPolicy.of(bases)
    assert error.value.details["code"] == code
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "member", [{"allow": BASE}, {"deny": []}, {"allow": [BASE]}, {"allow": [{"base": BASE}]}, [BASE], "all"]
)
def test_policy_member_of_other_shape_is_refused(member: Any) -> None:
    with pytest.raises(InvalidInput) as error:
        read_policy_member(member)
    assert error.value.details["code"] == "invalid_external_blob_policy"


@pytest.mark.parametrize("member", [None, {}, {"allow": None}, {"allow": []}])
def test_policy_member_absent_or_empty_denies(member: Any) -> None:
    policy = read_policy_member(member)
    assert policy.to_json() is None
    assert policy.digest_input() == b""


def test_policy_json_and_digest_have_the_recorded_form() -> None:
    policy = read_policy_member({"allow": [{"base": BASE, "scope": "server_safe"}]})
    assert policy.to_json() == {"mode": "allow", "bases": [{"uri": BASE, "scope": "server_safe"}]}
    text = '{"mode":"allow","bases":[{"uri":"s3://assets/k/","scope":"server_safe"}]}'
    assert policy.digest_input() == f"external_blob_policy\0{text}\0".encode()
    assert len(hashlib.sha256(policy.digest_input()).hexdigest()) == 64
