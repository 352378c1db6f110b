"""A small graph with every kind of file, and ways to damage its files."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import omnigraph as og
from omnigraph.graph.open_storage import connect
from omnigraph.maintain.verification.report import Damage, VerifyReport
from omnigraph.maintain.verification.verify import verify
from omnigraph.maintain.verification.verify_options import VerifyOptions

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    bio: String? @index
    photo: Blob?
}
node Doc {
    title: String
}
edge Knows: Person -> Person {
    since: I32?
}
"""
WITH_EMAIL = SCHEMA.replace("    photo", "    email: String @unique\n    photo")


def build_graph(path: Path) -> None:
    """Make a graph with branches, a merge, deletions, indexes, a large blob and a column in files of its own."""
    rng = random.Random(7)
    photo = "base64:" + base64.b64encode(rng.randbytes(200_000)).decode()
    graph = og.init(path, schema=SCHEMA, durability="os")
    people = [{"name": f"p{number}", "age": number} for number in range(12)]
    graph.load({"Person": [*people[1:], {**people[0], "photo": photo}]})
    graph.load({"Knows": [{"from": f"p{at}", "to": f"p{at + 1}"} for at in range(6)]})
    graph.load({"Doc": [{"title": f"d{number}"} for number in range(3)]})
    graph.optimize()
    graph.mutate('query q() { delete Person where name = "p11" }')
    graph.schema.apply(WITH_EMAIL, backfill={"Person.email": og.expr("$this.name")})
    graph.branches.create("work")
    graph.mutate('query q() { insert Person { name: "zoe", email: "z@x.org" } }', branch="work")
    graph.mutate('query q() { insert Doc { title: "later" } }')
    graph.branches.merge("work")
    graph.branches.create("deep", source="work")
    graph.mutate('query q() { insert Person { name: "yan", email: "y@x.org" } }', branch="deep")
    graph.verify(all_commits=True, record=True)
    graph.close()


def verify_path(path: Path, **options: bool | str) -> VerifyReport:
    """Verify the graph at a path without opening it."""
    _, root, objects = connect(path, None, "os")
    return verify(root, objects, VerifyOptions(**options))  # type: ignore[arg-type]


def stored_files(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


def find_damage(report: VerifyReport, file: str) -> Damage | None:
    return next((item for item in report.damage if item.file == file), None)


def find_file(path: Path, pattern: str) -> str:
    """Return the only file that matches a pattern below the graph."""
    (found,) = path.glob(pattern)
    return str(found.relative_to(path))


# --- ways to damage a file ----------------------------------------------------------------------------------


def flip_bit(file: Path, bit: int | None = None) -> None:
    data = bytearray(file.read_bytes())
    bit = len(data) * 4 if bit is None else bit
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def delete(file: Path) -> None:
    file.unlink()


def replace(file: Path) -> None:
    """Replace the content by another one of the same size."""
    file.write_bytes(random.Random(3).randbytes(file.stat().st_size))


DAMAGES: dict[str, Callable[[Path], None]] = {
    "flipped": flip_bit,
    "truncated": truncate,
    "deleted": delete,
    "replaced": replace,
}


def needed_files(path: Path) -> Iterator[str]:
    """Yield the files that a head of the graph needs: those whose deletion a verification reports."""
    for name in stored_files(path):
        file = path / name
        data = file.read_bytes()
        file.unlink()
        try:
            if find_damage(verify_path(path, quick=True), name) is not None:
                yield name
        finally:
            file.write_bytes(data)
