"""TLS of the listening socket: certificate, private key, and their replacement while the server runs."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from omnigraph.errors import InvalidInput

CERTIFICATE_VARIABLE: Final = "OMNIGRAPH_TLS_CERT"
KEY_VARIABLE: Final = "OMNIGRAPH_TLS_KEY"
PASSWORD_VARIABLE: Final = "OMNIGRAPH_TLS_KEY_PASSWORD"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The paths of the certificate chain and of the private key, both PEM, and the password of the key."""

    certificate: str
    key: str
    password: str | None = field(default=None, repr=False)


def find_tls_files(
    certificate: str | None, key: str | None, environment: Mapping[str, str]
) -> TlsFiles | None:
    """Return the files that options or environment variables name, or None if the server does not use TLS.

    Raises `InvalidInput` if only one of the two files is named.

    >>> find_tls_files("server.pem", None, {"OMNIGRAPH_TLS_KEY": "server.key"})
    TlsFiles(certificate='server.pem', key='server.key')
    """
    certificate = certificate or environment.get(CERTIFICATE_VARIABLE) or None
    key = key or environment.get(KEY_VARIABLE) or None
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing = f"--tls-cert or {CERTIFICATE_VARIABLE}" if key else f"--tls-key or {KEY_VARIABLE}"
        raise InvalidInput("TLS needs a certificate and a private key", hint=f"also set {missing}")
    return TlsFiles(certificate, key, environment.get(PASSWORD_VARIABLE) or None)


class TlsCertificates:
    """The TLS context of a server, whose certificate can be replaced. Open connections keep the old one."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._current = self.read()
        self.context = _new_context()
        # OpenSSL calls it for every handshake, also if the client names no server.
        self.context.sni_callback = self._select

    def read(self) -> ssl.SSLContext:
        """Read both files; `InvalidInput` if they cannot be used. The certificate in use does not change."""
        return read_certificate(self._files)

    def replace(self, context: ssl.SSLContext) -> None:
        """Use the certificate of a context that `read` returned for new connections."""
        self._current = context

    def _select(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:  # noqa: ARG002
        connection.context = self._current


def read_certificate(files: TlsFiles) -> ssl.SSLContext:
    """Return a context with a certificate and its key. Raises `InvalidInput` with the file and the reason."""
    for what, path in (("certificate", files.certificate), ("private key", files.key)):
        _check_readable(what, path)
    context = _new_context()

    def password() -> str:
        if files.password is None:
            # Without this function OpenSSL would ask for the password on the terminal.
            raise InvalidInput(
                f"the TLS private key {files.key} is encrypted", hint=f"set {PASSWORD_VARIABLE}"
            )
        return files.password

    try:
        context.load_cert_chain(files.certificate, files.key, password)
    except ssl.SSLError as error:
        raise _explain(files, error) from error
    return context


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _check_readable(what: str, path: str) -> None:
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        raise InvalidInput(f"the TLS {what} {path} cannot be read: {error.strerror}") from error


def _explain(files: TlsFiles, error: ssl.SSLError) -> InvalidInput:
    if error.reason == "KEY_VALUES_MISMATCH":
        return InvalidInput(
            f"the TLS private key {files.key} does not belong to the certificate {files.certificate}",
            hint="the server certificate must be the first in its file",
        )
    if "-----BEGIN CERTIFICATE-----" not in _text(files.certificate):
        return InvalidInput(f"{files.certificate} has no PEM certificate")
    if "PRIVATE KEY-----" not in _text(files.key):
        return InvalidInput(f"{files.key} has no PEM private key")
    if files.password is not None and "ENCRYPTED" in _text(files.key):
        return InvalidInput(f"the password of the TLS private key {files.key} is wrong")
    return InvalidInput(f"OpenSSL rejects {files.certificate} with {files.key}: {error.reason or error}")


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="latin-1")
    except OSError:
        return ""
