"""A process that changes the schema of its own branch again and again."""

from __future__ import annotations

import json
import sys

import omnigraph as og
from tests.support.workers import report, wait_for_start


def main() -> None:
    given = json.loads(sys.argv[1])
    graph = og.open(given["uri"], durability="os")
    branch = given["branch"]
    wait_for_start()
    for number in range(given["times"]):
        text = graph.schema.source(branch) + f"node T{number} {{ name: String @key  a: I32? }}\n"
        graph.schema.apply(text.replace("node P {", f"node P {{ p{number}: I32? "), branch=branch)
    report("done")


if __name__ == "__main__":
    main()
