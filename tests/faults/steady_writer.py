"""A process that adds cities to a branch until it is killed or the branch is deleted.

    python -m tests.faults.steady_writer '{"uri": "…", "branch": "side"}'

prints ``ACK <id>`` for each.
"""

from __future__ import annotations

import json
import sys
from itertools import count

import omnigraph as og
from omnigraph.errors import NotFound
from tests.support.workload import say


def main() -> None:
    asked = json.loads(sys.argv[1])
    graph = og.open(asked["uri"], durability="os")
    for number in count():
        id_ = f"city-{number}"
        try:
            graph.load({"City": [{"name": id_, "size": number}]}, branch=asked["branch"])
        except NotFound as error:
            # The deletion of the branch ends the work. Anything else that is missing is a defect.
            if "branch" not in error.details:
                raise
            return
        say(f"ACK {id_}")


if __name__ == "__main__":
    main()
