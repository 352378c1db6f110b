"""`--verify-reads`: files are compared with their digests; a server chooses this itself."""

from __future__ import annotations

from pathlib import Path

from tests.cli.graphs import add_people, make_graph
from tests.cli.running import run

QUERY = "query all() { match { $p: Person } return { $p.name } }"


def test_query_of_an_altered_file_with_verify_reads_fails_and_names_it(folder: Path) -> None:
    make_graph("g.omni")
    add_people("g.omni", "Ann", "Bob")
    arguments = ("query", "-e", QUERY, "--store", "g.omni")
    intact = run("--verify-reads", *arguments)
    assert (intact.code, intact.stderr) == (0, "")
    (file,) = (folder / "g.omni" / "nodes").rglob("data/*.lance")
    data = bytearray(file.read_bytes())
    data[10] ^= 1
    file.write_bytes(data)
    outcome = run("--verify-reads", *arguments)
    assert outcome.code == 1
    assert f"{file.name}: its digest is" in outcome.stderr


def test_verify_reads_of_a_served_graph_is_refused() -> None:
    outcome = run("--verify-reads", "query", "-e", QUERY, "--server", "http://127.0.0.1:9", "--graph", "g")
    assert outcome.code == 1
    assert "--verify-reads does not apply." in outcome.stderr
