"""Graphs in a bucket: copies of graphs that were prepared on a local disk, which is much quicker."""

from __future__ import annotations

from pathlib import Path

from tests.support.s3 import Bucket


def upload_graph(source: Path, bucket: Bucket, prefix: str) -> str:
    """Put a copy of a local graph into a bucket; gives its address."""
    for file in sorted(source.rglob("*")):
        if file.is_file():
            key = f"{prefix}/{file.relative_to(source).as_posix()}"
            bucket.server.objects.put(bucket.name, key, file.read_bytes())
    return f"{bucket.uri}/{prefix}"
