"""TLS over real sockets: versions, certificates, invalid files and the client."""

from __future__ import annotations

import json
import pickle
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput, StorageError
from omnigraph.server.app import create_app
from omnigraph.server.tls import TlsCertificates, TlsFiles, find_tls_files
from tests.cli.running import run
from tests.server.running import ALL, SCHEMA, host, running_app
from tests.support.certificates import Authority
from tests.support.waiting import HANG


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an authority, a certificate and its key."""
    folder = tmp_path_factory.mktemp("tls")
    Authority.create(folder).issue(folder / "server.pem", folder / "server.key")
    return folder


@pytest.fixture(scope="module")
def url(files: Path) -> Iterator[str]:
    """Return the address of a shared server with TLS."""
    tls = TlsCertificates(TlsFiles(str(files / "server.pem"), str(files / "server.key")))
    with serving(tls) as found:
        yield found


@contextmanager
def serving(tls: TlsCertificates) -> Iterator[str]:
    app = create_app(host())
    app.state.tls = tls
    with running_app(app) as plain:
        yield plain.replace("http:", "https:")


def handshake(url: str, files: Path, *, maximum: ssl.TLSVersion | None = None) -> str | None:
    """Connect, and return the version of TLS."""
    context = ssl.create_default_context(cafile=files / "authority.pem")
    if maximum is not None:
        # OpenSSL 3 offers old versions only at security level 0.
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = maximum
    place = httpx.URL(url)
    with (
        socket.create_connection((place.host, place.port or 0), HANG) as plain,
        context.wrap_socket(plain, server_hostname=place.host) as found,
    ):
        return found.version()


def test_tls_request_with_trusted_certificate_is_answered(url: str, files: Path) -> None:
    with httpx.Client(verify=ssl.create_default_context(cafile=files / "authority.pem")) as client:
        found = client.post(f"{url}/graphs/team/query", json={"query": ALL}, timeout=HANG)
    assert [row["name"] for row in found.json()["rows"]] == ["Ann", "Bob"]
    assert handshake(url, files) == "TLSv1.3"
    assert handshake(url, files, maximum=ssl.TLSVersion.TLSv1_2) == "TLSv1.2"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tls_handshake_below_version_1_2_is_refused(url: str, files: Path) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        handshake(url, files, maximum=ssl.TLSVersion.TLSv1_1)


def test_connect_with_ca_file_reads_and_writes_over_tls(url: str, files: Path) -> None:
    with og.connect(url, "team", ca_file=str(files / "authority.pem")) as graph:
        graph.branches.create("tls")
        assert [row["name"] for row in graph.query(ALL, branch="tls")] == ["Ann", "Bob"]
        with pickle.loads(pickle.dumps(graph)) as copy:
            assert "tls" in copy.branches.list()


def test_connect_without_the_authority_of_the_server_is_refused(url: str, tmp_path: Path) -> None:
    for ca_file in (None, str(Authority.create(tmp_path, "other").file)):
        with pytest.raises(StorageError, match="is not trusted") as caught:
            og.connect(url, "team", ca_file=ca_file)
        assert caught.value.kind == "configuration"
        assert "ca_file" in str(caught.value.hint)


def test_connect_with_environment_variable_trusts_the_authority(
    url: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(files / "authority.pem"))
    with og.connect(url, "team") as graph:
        assert len(graph.query(ALL)) == 2


@pytest.mark.parametrize(("name", "reason"), [("absent.pem", "No such file"), ("server.key", "no PEM")])
def test_connect_with_unusable_ca_file_is_refused(url: str, files: Path, name: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        og.connect(url, "team", ca_file=str(files / name))


def test_plain_request_to_tls_port_gets_no_answer(url: str) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(url.replace("https:", "http:") + "/healthz", timeout=HANG)


def test_replaced_certificate_is_used_by_new_connections_only(tmp_path: Path) -> None:
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    old, new = Authority.create(tmp_path, "old"), Authority.create(tmp_path, "new")
    old.issue(certificate, key)
    tls = TlsCertificates(TlsFiles(str(certificate), str(key)))
    with (
        serving(tls) as url,
        httpx.Client(base_url=url, verify=ssl.create_default_context(cafile=old.file)) as client,
    ):
        assert client.get("/healthz", timeout=HANG).status_code == 200
        new.issue(certificate, key)
        tls.replace(tls.read())
        # The connection is kept open, so it does not see the new certificate.
        assert client.get("/healthz", timeout=HANG).status_code == 200
        with httpx.Client(verify=ssl.create_default_context(cafile=new.file)) as other:
            assert other.get(f"{url}/healthz", timeout=HANG).status_code == 200
        with (
            httpx.Client(verify=ssl.create_default_context(cafile=old.file)) as other,
            pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            other.get(f"{url}/healthz", timeout=HANG)


def test_start_with_unusable_tls_files_reports_file_and_reason(files: Path, tmp_path: Path) -> None:
    og.init(str(tmp_path / "team.omni"), SCHEMA).close()
    authority = Authority.create(tmp_path)
    authority.issue(tmp_path / "other.pem", tmp_path / "other.key")
    authority.issue(tmp_path / "locked.pem", tmp_path / "locked.key", b"secret-password")
    (tmp_path / "text.pem").write_text("text", encoding="ascii")
    certificate, key = str(files / "server.pem"), str(files / "server.key")
    cases = [
        (certificate, None, "--tls-key"),
        (None, key, "--tls-cert"),
        (str(files / "absent.pem"), key, "absent.pem cannot be read: No such file"),
        (certificate, str(files), "cannot be read: Is a directory"),
        (certificate, str(tmp_path / "other.key"), "does not belong to the certificate"),
        (str(tmp_path / "text.pem"), key, "text.pem has no PEM certificate"),
        (certificate, certificate, "has no PEM private key"),
        (str(tmp_path / "locked.pem"), str(tmp_path / "locked.key"), "is encrypted"),
    ]
    for certificate_file, key_file, text in cases:
        args = [] if certificate_file is None else ["--tls-cert", certificate_file]
        args += [] if key_file is None else ["--tls-key", key_file]
        found = run("serve", str(tmp_path), "--unauthenticated", "--bind", "127.0.0.1:0", *args)
        assert (found.code, found.stdout) == (1, ""), text
        assert text in " ".join(found.stderr.split()), found.stderr


def test_tls_files_come_from_the_environment_with_a_password(tmp_path: Path) -> None:
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    Authority.create(tmp_path).issue(certificate, key, b"secret-password")
    environment = {
        "OMNIGRAPH_TLS_CERT": str(certificate),
        "OMNIGRAPH_TLS_KEY": str(key),
        "OMNIGRAPH_TLS_KEY_PASSWORD": "secret-password",
    }
    files = find_tls_files(None, None, environment)
    assert files is not None
    assert "secret-password" not in repr(files)
    TlsCertificates(files)
    wrong = find_tls_files(None, None, {**environment, "OMNIGRAPH_TLS_KEY_PASSWORD": "wrong"})
    assert wrong is not None
    with pytest.raises(InvalidInput, match="password"):
        TlsCertificates(wrong)


def test_unauthenticated_server_with_tls_stays_local(files: Path, tmp_path: Path) -> None:
    og.init(str(tmp_path / "team.omni"), SCHEMA).close()
    args = ["--tls-cert", str(files / "server.pem"), "--tls-key", str(files / "server.key")]
    found = run("serve", str(tmp_path), "--unauthenticated", "--bind", "0.0.0.0:0", *args)
    assert found.code == 1
    assert "--force" in found.stderr
    assert json.dumps(found.stdout) == '""'
