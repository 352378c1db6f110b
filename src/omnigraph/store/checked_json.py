"""JSON objects with a checksum, for small objects beside the tables that nothing else records."""

from __future__ import annotations

import json
from typing import Final

from omnigraph.store.file_digests import digest_text
from omnigraph.store.manifest.records import Body, encode_body

_CHECKSUM: Final = "checksum"


def encode_checked(body: Body) -> bytes:
    """Return the JSON form of an object with the digest of its other members as the last one.

    >>> encode_checked({"a": 1})
    b'{"a":1,"checksum":"3c8c141663acf5a1b6b7137162fa70fb"}'
    """
    return encode_body({**body, _CHECKSUM: digest_text(encode_body(body))}).encode()


def decode_checked(data: bytes) -> Body:
    """Return an object without its checksum. Objects of earlier releases have none.

    Raises `ValueError` if it cannot be parsed, or if it is not what was encoded.

    >>> decode_checked(encode_checked({"a": 1})), decode_checked(b'{"a":1}')
    ({'a': 1}, {'a': 1})
    """
    body = json.loads(data)
    if not isinstance(body, dict):
        raise ValueError(f"expected an object, got {type(body).__name__}")
    if body.pop(_CHECKSUM, None) is not None and data != encode_checked(body):
        raise ValueError("its content does not match its checksum")
    return body
