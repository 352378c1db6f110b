"""Graphs in a bucket: copies from a local disk and to it. To prepare and to check graphs is quicker there."""

from __future__ import annotations

import shutil
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
