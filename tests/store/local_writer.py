"""A process that writes one local object, for strace to record or kill."""

from __future__ import annotations

import json
import sys
from typing import Any

from omnigraph.errors import OutcomeUnknown
from omnigraph.store.objects.object_store import ObjectStore

MARK = "the write begins"


def main() -> None:
    task: dict[str, Any] = json.loads(sys.argv[1])
    store = ObjectStore.open(task["root"], durability=task["durability"])
    data = b"new" * 1000
    etag = store.get(task["key"]).etag if task["work"] == "replace" else ""
    # Marks the start of the write in the trace.
    sys.stdout.write(MARK + "\n")
    sys.stdout.flush()
    try:
        match task["work"]:
            case "put":
                outcome: object = store.put(task["key"], data)
            case "create":
                outcome = store.create_if_absent(task["key"], data)
            case "replace":
                outcome = store.replace_if_matches(task["key"], data, etag)
            case _:
                store.delete(task["key"])
                outcome = None
    except OutcomeUnknown:
        outcome = "unknown"
    sys.stdout.write(json.dumps(outcome) + "\n")


if __name__ == "__main__":
    main()
