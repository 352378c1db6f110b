"""Graphs in a bucket: copies from a local disk and to it. To prepare and to check graphs is quicker there."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection
from pathlib import Path

from tests.support.s3 import Bucket


def upload_graph(source: Path, bucket: Bucket, prefix: str) -> str:
    """Put a copy of a local graph into a bucket; gives its address."""
    for file in sorted(source.rglob("*")):
        if file.is_file():
            key = f"{prefix}/{file.relative_to(source).as_posix()}"
            bucket.server.objects.put(bucket.name, key, file.read_bytes())
    return f"{bucket.uri}/{prefix}"


def download_graph(bucket: Bucket, prefix: str, target: Path) -> str:
    """Replace a local directory with a copy of a graph in a bucket; gives its path."""
    shutil.rmtree(target, ignore_errors=True)
    for key in bucket.keys:
        if key.startswith(f"{prefix}/"):
            file = target / key.removeprefix(f"{prefix}/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bucket.server.objects.get(bucket.name, key))
    return str(target)


def digest_bucket(bucket: Bucket, *, without_names_of: Collection[str] = ()) -> str:
    """Return a digest of all keys and contents of a bucket: equal digests need only one check.

    `without_names_of` are the keys of a graph before a write. Of the objects that are new since then, only the
    folders count: names and contents hold times and random numbers.
    """
    digest = hashlib.sha256()
    for key in bucket.keys:
        is_new = bool(without_names_of) and key not in without_names_of
        data = b"" if is_new else bucket.server.objects.get(bucket.name, key)
        name = key.rpartition("/")[0] if is_new else key
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()
