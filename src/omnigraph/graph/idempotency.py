"""Idempotency keys: a key is bound to one commit id, so a request that is sent twice commits once.

The first write with a key stores the commit id that it will use, with create-if-absent. A later write with the
same key reads that id. If the commit exists, the work is done. If it does not, the later write publishes under
the same id, and the manifest accepts only one commit with it.
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
    """The commit id of a key. `fresh` is set when this call was the first to use the key."""

    commit_id: str
    fresh: bool


def claim_key(objects: ObjectStore, key: str, head: HeadRecord, request: str, now: int) -> KeyClaim:
    """Return the commit id of a key on a branch; `Conflict` if the key was used for another request.

    A key belongs to one incarnation of a branch. A branch that was deleted and created again does not contain the
    commits of earlier keys.
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
    stored = json.loads(objects.get(name).data)
    if stored["request"] != request_digest:
        raise Conflict(
            f"idempotency key '{key}' was used for a different request on branch '{head.branch}'",
            details={"idempotency_key": key, "commit_id": stored["commit_id"]},
            hint="use a new key for a new request",
        )
    return KeyClaim(stored["commit_id"], fresh=False)
