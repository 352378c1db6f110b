"""Idempotency keys: a key owns one commit id for good, so a request sent twice commits once.

The first writer with a key stores the commit id it is about to use, create-if-absent. Whoever comes with the same
key finds that id: if the commit exists the work is done, and if it does not the newcomer publishes under the same
id, of which the manifest accepts one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from omnigraph.errors import Conflict
from omnigraph.store.manifest.manifest_files import new_id
from omnigraph.store.manifest.records import HeadRecord, encode_body
from omnigraph.store.objects.object_store import ObjectStore

PREFIX = "__idempotency/"


@dataclass(frozen=True, slots=True)
class KeyClaim:
    """The commit id that belongs to a key; `fresh` when this call was the first with it."""

    commit_id: str
    fresh: bool


def claim_key(objects: ObjectStore, key: str, head: HeadRecord, request: str, now: int) -> KeyClaim:
    """The commit id of a key on a branch. `Conflict` when the key was used for another request.

    Keys belong to a branch's incarnation: a branch that is made again under an old name holds nothing of what the
    old one's keys committed.
    """
    digest = hashlib.sha256(f"{head.incarnation}\0{key}".encode()).hexdigest()
    request_digest = hashlib.sha256(request.encode()).hexdigest()
    commit_id = new_id()
    body = {
        "key": key,
        "branch": head.branch,
        "incarnation": head.incarnation,
        "request": request_digest,
        "commit_id": commit_id,
        "created_at": now,
    }
    name = f"{PREFIX}{digest}.json"
    if objects.create_if_absent(name, encode_body(body).encode()):
        return KeyClaim(commit_id, fresh=True)
    found = json.loads(objects.get(name).data)
    if found["request"] != request_digest:
        raise Conflict(
            f"idempotency key '{key}' was used for a different request on branch '{head.branch}'",
            details={"idempotency_key": key, "commit_id": found["commit_id"]},
            hint="use a new key for a new request",
        )
    return KeyClaim(found["commit_id"], fresh=False)
