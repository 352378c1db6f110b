"""A process that commits whenever it is told to.

    python -m tests.read.committing_worker '{"uri": "…"}'

For every line on its standard input it gives everybody that number, and answers with the id of the commit.
"""

from __future__ import annotations

import json
import sys

import omnigraph as og

BUMP = 'query bump($n: I32) { update Person set { age: $n } where name = "a" }'


def main() -> None:
    graph = og.open(json.loads(sys.argv[1])["uri"], durability="os")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        commit = graph.mutate(BUMP, {"n": int(line)}).commit
        assert commit is not None
        sys.stdout.write(commit.id + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
