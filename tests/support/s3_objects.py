"""The part of S3 that Lance and obstore use, as a strictly consistent store in memory.

One lock makes every operation atomic, which is what S3 promises for a single key and what conditional writes
rely on. Nothing here knows of HTTP connections: a request comes in, a reply goes out.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from urllib.parse import quote, unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

PAGE = 1000
KEPT_HEADERS = ("content-type", "content-encoding", "cache-control", "content-disposition")


@dataclass(frozen=True)
class Request:
    """One HTTP request, already taken apart; header names are lower case."""

    method: str
    bucket: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """What goes back; `size` is the length a HEAD announces without sending it."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    size: int | None = None


@dataclass(frozen=True)
class Stored:
    """One version of one object."""

    data: bytes
    etag: str
    modified: float
    headers: Mapping[str, str]


class Refusal(Exception):
    """An S3 error reply."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.reply = error_reply(status, code)


def error_reply(status: int, code: str) -> Reply:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
    return Reply(status, body.encode(), {"Content-Type": "application/xml"})


class Objects:
    """Buckets, objects and unfinished uploads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets: dict[str, dict[str, Stored]] = {}
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._count = 0

    def make_bucket(self, name: str) -> None:
        with self._lock:
            self._buckets.setdefault(name, {})

    def drop_bucket(self, name: str) -> None:
        with self._lock:
            self._buckets.pop(name, None)

    def put(self, bucket: str, key: str, data: bytes) -> None:
        """Store an object without a request, to prepare a test."""
        reply = self.answer(Request("PUT", bucket, key, {}, {}, data))
        assert reply.status == 200, reply

    def get(self, bucket: str, key: str) -> bytes:
        """Return the content of an object without a request."""
        with self._lock:
            return self._buckets[bucket][key].data

    def decay(self, bucket: str, key: str, data: bytes) -> None:
        """Replace the content of an object as a failing disk does: its entity tag stays that of the former one."""
        with self._lock:
            self._buckets[bucket][key] = replace(self._buckets[bucket][key], data=data)

    def keys(self, bucket: str) -> list[str]:
        with self._lock:
            return sorted(self._buckets[bucket], key=str.encode)

    def answer(self, request: Request) -> Reply:
        """Carry out a request; every refusal is a reply too."""
        try:
            with self._lock:
                bucket = self._buckets.get(request.bucket)
                if bucket is None:
                    raise Refusal(404, "NoSuchBucket")
                return self._dispatch(request, bucket)
        except Refusal as refusal:
            return refusal.reply

    def _dispatch(self, request: Request, bucket: dict[str, Stored]) -> Reply:
        query = request.query
        match request.method:
            case "GET" if not request.key:
                return _list(bucket, query)
            case "GET" | "HEAD" if request.key:
                return _get(bucket, request)
            case "PUT" if "partNumber" in query:
                return self._put_part(request)
            case "PUT" if request.key:
                data, headers = _body(self._buckets, request)
                return self._put(bucket, request, data, headers)
            case "DELETE" if "uploadId" in query:
                self._uploads.pop(query["uploadId"], None)
                return Reply(204)
            case "DELETE" if request.key:
                bucket.pop(request.key, None)
                return Reply(204)
            case "POST" if "delete" in query:
                return _delete_many(bucket, request.body)
            case "POST" if "uploads" in query:
                self._count += 1
                upload = f"upload-{self._count}"
                self._uploads[upload] = {}
                return _xml(
                    f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
                )
            case "POST" if "uploadId" in query:
                return self._complete(bucket, request)
        raise Refusal(501, "NotImplemented")

    def _put(
        self, bucket: dict[str, Stored], request: Request, data: bytes, headers: Mapping[str, str]
    ) -> Reply:
        _check_write(bucket.get(request.key), request.headers)
        etag = f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
        bucket[request.key] = Stored(data, etag, time.time(), headers)
        if "x-amz-copy-source" in request.headers:
            return _xml(f"<CopyObjectResult><ETag>{escape(etag)}</ETag></CopyObjectResult>")
        return Reply(200, headers={"ETag": etag})

    def _put_part(self, request: Request) -> Reply:
        parts = self._uploads.get(request.query["uploadId"])
        if parts is None:
            raise Refusal(404, "NoSuchUpload")
        data, _ = _body(self._buckets, request)
        parts[int(request.query["partNumber"])] = data
        etag = f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
        if "x-amz-copy-source" in request.headers:
            return _xml(f"<CopyPartResult><ETag>{escape(etag)}</ETag></CopyPartResult>")
        return Reply(200, headers={"ETag": etag})

    def _complete(self, bucket: dict[str, Stored], request: Request) -> Reply:
        upload = request.query["uploadId"]
        if upload not in self._uploads:
            raise Refusal(404, "NoSuchUpload")
        _check_write(bucket.get(request.key), request.headers)
        parts = self._uploads.pop(upload)
        data = b"".join(parts[number] for number in sorted(parts))
        etag = f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}-{len(parts)}"'
        bucket[request.key] = Stored(data, etag, time.time(), {})
        return _xml(
            f"<CompleteMultipartUploadResult><ETag>{escape(etag)}</ETag></CompleteMultipartUploadResult>"
        )


def _check_write(current: Stored | None, headers: Mapping[str, str]) -> None:
    """The conditions of a write, as S3 documents them."""
    if headers.get("if-none-match") == "*" and current is not None:
        raise Refusal(412, "PreconditionFailed")
    expected = headers.get("if-match")
    if expected is not None:
        if current is None:
            raise Refusal(404, "NoSuchKey")
        if expected.strip('"') != current.etag.strip('"'):
            raise Refusal(412, "PreconditionFailed")


def _body(buckets: dict[str, dict[str, Stored]], request: Request) -> tuple[bytes, Mapping[str, str]]:
    """The bytes to store: those sent, or those of the object to copy."""
    headers = {
        name: value
        for name, value in request.headers.items()
        if name.startswith("x-amz-meta-") or name in KEPT_HEADERS
    }
    source = request.headers.get("x-amz-copy-source")
    if source is None:
        return request.body, headers
    from_bucket, _, from_key = unquote(source).lstrip("/").partition("/")
    stored = buckets.get(from_bucket, {}).get(from_key)
    if stored is None:
        raise Refusal(404, "NoSuchKey")
    span = _span(request.headers.get("x-amz-copy-source-range"), len(stored.data))
    return (stored.data[span[0] : span[1]] if span else stored.data), stored.headers


def _get(bucket: dict[str, Stored], request: Request) -> Reply:
    stored = bucket.get(request.key)
    if stored is None:
        raise Refusal(404, "NoSuchKey")
    expected, unwanted = request.headers.get("if-match"), request.headers.get("if-none-match")
    if expected is not None and expected.strip('"') != stored.etag.strip('"'):
        raise Refusal(412, "PreconditionFailed")
    if unwanted is not None and unwanted.strip('"') in ("*", stored.etag.strip('"')):
        return Reply(304, headers={"ETag": stored.etag})
    headers = {
        **stored.headers,
        "ETag": stored.etag,
        "Last-Modified": formatdate(stored.modified, usegmt=True),
        "Accept-Ranges": "bytes",
    }
    span = _span(request.headers.get("range"), len(stored.data))
    status, data = 200, stored.data
    if span is not None:
        status, data = 206, stored.data[span[0] : span[1]]
        headers["Content-Range"] = f"bytes {span[0]}-{span[1] - 1}/{len(stored.data)}"
    if request.method == "HEAD":
        return Reply(status, b"", headers, size=len(data))
    return Reply(status, data, headers)


def _span(text: str | None, length: int) -> tuple[int, int] | None:
    """The half-open range that a Range header asks for."""
    if text is None:
        return None
    first, _, last = text.removeprefix("bytes=").partition("-")
    start = int(first) if first else max(0, length - int(last))
    end = min(length, int(last) + 1) if first and last else length
    if start >= end:
        raise Refusal(416, "InvalidRange")
    return start, end


def _list(bucket: dict[str, Stored], query: Mapping[str, str]) -> Reply:
    """ListObjectsV2; the continuation token is the last key or common prefix of the page before."""
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = query.get("continuation-token") or query.get("start-after", "")
    limit = min(PAGE, int(query.get("max-keys", PAGE)))
    entries: list[str] = []
    prefixes: list[str] = []
    last, more = "", False
    for key in sorted((key for key in bucket if key.startswith(prefix)), key=str.encode):
        cut = key.find(delimiter, len(prefix)) if delimiter else -1
        name = key[: cut + len(delimiter)] if cut >= 0 else key
        if name.encode() <= after.encode() or (prefixes and name == prefixes[-1]):
            continue
        if len(entries) + len(prefixes) == limit:
            more = True
            break
        last = name
        if cut >= 0:
            prefixes.append(name)
            continue
        stored = bucket[key]
        # S3 lists with milliseconds; the fraction is cut, not rounded, as there.
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(stored.modified))
        entries.append(
            f"<Contents><Key>{_text(key, query)}</Key><LastModified>{moment}.000Z</LastModified>"
            f"<ETag>{escape(stored.etag)}</ETag><Size>{len(stored.data)}</Size></Contents>"
        )
    shared = (f"<CommonPrefixes><Prefix>{_text(name, query)}</Prefix></CommonPrefixes>" for name in prefixes)
    token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if more else ""
    count = f"<KeyCount>{len(entries) + len(prefixes)}</KeyCount><MaxKeys>{limit}</MaxKeys>"
    return _xml(
        f"<ListBucketResult><Prefix>{_text(prefix, query)}</Prefix>{count}"
        f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{''.join(entries)}{''.join(shared)}"
        "</ListBucketResult>"
    )


def _text(key: str, query: Mapping[str, str]) -> str:
    return quote(key) if query.get("encoding-type") == "url" else escape(key)


def _delete_many(bucket: dict[str, Stored], body: bytes) -> Reply:
    names = [
        element.text or "" for element in ElementTree.fromstring(body).iter() if element.tag.endswith("Key")
    ]
    for name in names:
        bucket.pop(name, None)
    done = "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in names)
    return _xml(f"<DeleteResult>{done}</DeleteResult>")


def _xml(text: str) -> Reply:
    return Reply(
        200, f"<?xml version='1.0' encoding='UTF-8'?>{text}".encode(), {"Content-Type": "application/xml"}
    )
