"""The rows that one compare-and-swap adds to `__manifest`, and the files that hold them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from omnigraph.store.manifest.manifest_files import (
    LogKind,
    Rows,
    bucket_name,
    head_name,
    log_name,
    reclaimed_name,
    registry_name,
    schema_name,
)
from omnigraph.store.manifest.name_buckets import Bucket
from omnigraph.store.manifest.records import (
    CommitRecord,
    DigestRecord,
    HeadRecord,
    RecoveryRecord,
    Registry,
    encode_body,
)


@dataclass(frozen=True, slots=True)
class ManifestChange:
    """The rows to add in one compare-and-swap. `heads` and `registry` replace their predecessors.

    `reclaimed` has the versions that garbage collection is about to remove, as texts by the path of their table.
    """

    registry: Registry | None = None
    heads: Sequence[HeadRecord] = ()
    commits: Sequence[CommitRecord] = ()
    schemas: dict[str, str] = field(default_factory=dict)
    recoveries: Sequence[RecoveryRecord] = ()
    digests: Sequence[DigestRecord] = ()
    buckets: Sequence[Bucket] = ()
    reclaimed: Mapping[str, str] = field(default_factory=dict)


def combine_changes(changes: Sequence[ManifestChange]) -> ManifestChange:
    """Return changes of different branches as one. None of them has a registry or buckets."""
    if len(changes) == 1:
        return changes[0]
    return ManifestChange(
        heads=[head for item in changes for head in item.heads],
        commits=[commit for item in changes for commit in item.commits],
        schemas={id_: payload for item in changes for id_, payload in item.schemas.items()},
        recoveries=[record for item in changes for record in item.recoveries],
        digests=[record for item in changes for record in item.digests],
    )


def new_files(change: ManifestChange) -> Iterator[tuple[str, Rows]]:
    """Yield the name and the rows of each file of a change."""
    if change.registry is not None:
        yield registry_name(), {"registry": encode_body(change.registry.to_body())}
    for head in change.heads:
        yield head_name(head.incarnation), {f"head:{head.branch}": encode_body(head.to_body())}
    for bucket in change.buckets:
        yield bucket_name(bucket.kind, bucket.lower), bucket.rows
    if change.reclaimed:
        yield reclaimed_name(), dict(change.reclaimed)
    for id_, payload in change.schemas.items():
        yield schema_name(id_), {f"schema:{id_}": payload}
    logs: list[tuple[LogKind, Sequence[CommitRecord | RecoveryRecord | DigestRecord]]] = [
        ("commit", change.commits),
        ("recovery", change.recoveries),
        ("digests", change.digests),
    ]
    for kind, records in logs:
        if records:
            rows = {f"{kind}:{item.id}": encode_body(item.to_body()) for item in records}
            yield log_name(kind, 0, [item.id for item in records]), rows
