"""A process that competes for commits to a Lance dataset; see `tests.support.workers`."""

from __future__ import annotations

import json
import sys
from typing import Any

import lance
import pyarrow as pa
from lance import LanceOperation
from lance.commit import CommitConflictError
from lance.fragment import write_fragments

from tests.support.workers import report, wait_for_start


def swap_head(dataset: lance.LanceDataset, text: str) -> bool:
    """Replace the only fragment of a dataset; return whether this swap won."""
    fragments = write_fragments(pa.table({"writer": [text]}), dataset)
    (head,) = dataset.get_fragments()
    operation = LanceOperation.Update(
        removed_fragment_ids=[head.fragment_id], updated_fragments=[], new_fragments=fragments
    )
    try:
        lance.LanceDataset.commit(dataset, operation, read_version=dataset.version, max_retries=0)
    except CommitConflictError:
        return False
    return True


def main() -> None:
    task: dict[str, Any] = json.loads(sys.argv[1])
    wait_for_start()
    won = []
    for number in range(task["times"]):
        for _attempt in range(200):
            dataset = lance.dataset(task["uri"], storage_options=task["options"])
            text = f"{task['name']}-{number}"
            if swap_head(dataset, text):
                won.append([dataset.version, text])
                break
    report(won)


if __name__ == "__main__":
    main()
