"""Idempotency keys: a key is bound to one commit id, so a request that is sent twice commits once.

The first write with a key stores the commit id that it will use, with create-if-absent. A later write with the
same key reads that id. If the commit exists, the work is done. If it does not, the later write publishes under
the same id, and the manifest accepts only one commit with it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from omnigraph.errors import Conflict
from omnigraph.store.checked_json import decode_checked, encode_checked
from omnigraph.store.manifest.manifest_errors import damaged_file
from omnigraph.store.manifest.manifest_files import new_id
from omnigraph.store.manifest.records import HeadRecord
from omnigraph.store.objects.object_store import ObjectStore

PREFIX = "__idempotency/"
_MEMBERS = frozenset(("key", "branch", "incarnation", "request", "commit_id", "created_at"))


@dataclass(frozen=True, slots=True)
class KeyClaim:
    """The commit id of a key in a branch incarnation. `fresh` is set if this call was the first to use the key."""

    commit_id: str
    incarnation: str
    fresh: bool


def claim_key(objects: ObjectStore, key: str, head: HeadRecord, request: str, now: int) -> KeyClaim:
    """Return the commit id of a key on a branch; `Conflict` if the key was used for another request.

    A key belongs to one incarnation of a branch. A branch that was deleted and created again does not contain the
    commits of earlier keys.
    """
    name = _name(head.incarnation, key)
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
    if objects.create_if_absent(name, encode_checked(body)):
        return KeyClaim(commit_id, head.incarnation, fresh=True)
    data = objects.get(name).data
    problem = find_key_problem(name, data)
    if problem is not None:
        # Another commit id would apply the request twice.
        raise damaged_file(name, problem)
    stored = decode_checked(data)
    if stored["request"] != request_digest:
        raise Conflict(
            f"idempotency key '{key}' was used for a different request on branch '{head.branch}'",
            details={"idempotency_key": key, "commit_id": stored["commit_id"]},
            hint="use a new key for a new request",
        )
    return KeyClaim(stored["commit_id"], head.incarnation, fresh=False)


def find_key_problem(name: str, data: bytes) -> str | None:
    """Return what is wrong with the record of a key, given the key of its object; None if it is intact.

    Records of earlier releases have no checksum.
    """
    try:
        body = decode_checked(data)
        if {*body} != _MEMBERS or name != _name(body["incarnation"], body["key"]):
            return "it is not the record of its key"
    except ValueError as error:
        return str(error)
    return None


def _name(incarnation: str, key: str) -> str:
    digest = hashlib.sha256(f"{incarnation}\0{key}".encode()).hexdigest()
    return f"{PREFIX}{digest}.json"


def canonical_text(value: Any) -> str:
    """Return a text that is equal for equal arguments of a request.

    The order of the keys of a mapping does not matter, nor whether a sequence is a list, a tuple or an array, nor
    whether a whole number is an integer or a float.

    >>> canonical_text({"b": (1, 2.0), "a": None}) == canonical_text({"a": None, "b": [1, 2]})
    True
    """
    return json.dumps(_canonical(value), separators=(",", ":"))


def _canonical(value: Any) -> Any:
    """Return a value as JSON data. Values that JSON does not have are arrays with the name of their type."""
    match value:
        case None | bool():
            return value
        case str():
            # An enumeration member is equal to its value, but its text may be its name.
            return str.__str__(value)
        case int():
            return ["number", str(int(value))]
        case float():
            whole = math.isfinite(value) and value == int(value)
            return ["number", str(int(value)) if whole else repr(float(value))]
        case Mapping():
            # Keys can be of any type, so that pairs are sorted by their text.
            pairs = [[_canonical(key), _canonical(item)] for key, item in value.items()]
            return ["mapping", sorted(pairs, key=json.dumps)]
        case Set():
            return ["set", sorted(map(_canonical, value), key=json.dumps)]
        case list() | tuple():
            return ["sequence", [_canonical(item) for item in value]]
        case bytes() | bytearray() | memoryview():
            return ["bytes", bytes(value).hex()]
        case datetime() | date():
            return ["time", value.isoformat()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
        return [type(value).__name__, _canonical(fields)]
    if hasattr(value, "tolist"):
        # The repr of a long array leaves elements out.
        return _canonical(value.tolist())
    return [type(value).__name__, str(value)]
