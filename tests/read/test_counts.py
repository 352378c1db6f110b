"""Counts of paths beyond 64 bits: exact where the result fits, an error where it does not; never wrapped."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import pytest

import omnigraph as og
from omnigraph.read import project
from tests.support.places import fresh_memory

SCHEMA = """
node Person { name: String @key  age: I64 }
edge Knows: Person -> Person
"""
NODES = 100


@pytest.fixture(scope="module")
def clique() -> Iterator[og.LocalGraph]:
    """A graph of 100 nodes with an edge between any two of them, in both directions."""
    names = [f"p{number}" for number in range(NODES)]
    with og.init(fresh_memory(), schema=SCHEMA) as graph:
        people = [{"name": name, "age": 2**62} for name in names]
        pairs = [{"from": left, "to": right} for left, right in permutations(names, 2)]
        graph.load({"Person": people, "Knows": pairs})
        yield graph


@pytest.fixture(params=["arrow", "duckdb"])
def projection(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine of the projection, chosen by the number of rows."""
    monkeypatch.setattr(project, "DUCKDB_ROWS", 0 if request.param == "duckdb" else 1 << 60)
    return str(request.param)


def paths(hops: int, outputs: str, where: str = "") -> str:
    steps = "  ".join(f"$v{number} knows $v{number + 1}" for number in range(hops))
    return f"query q() {{ match {{ {steps} {where} }} return {{ {outputs} }} }}"


@pytest.mark.usefixtures("projection")
def test_count_of_paths_within_64_bits_is_exact(clique: og.LocalGraph) -> None:
    assert clique.query(paths(7, "count($v0) as n")).rows() == [{"n": NODES * 99**7}]
    # All groups together have more paths than 64 bits hold.
    grouped = clique.query(paths(9, "$v9.name as name  count($v0) as n")).rows()
    assert {row["n"] for row in grouped} == {99**9}


@pytest.mark.usefixtures("projection")
def test_count_of_paths_beyond_64_bits_is_an_error(clique: og.LocalGraph) -> None:
    for hops, outputs in (
        (9, "count($v0) as n"),
        (9, "count($v9) as n"),
        (10, "$v10.name as name  count($v0) as n"),
    ):
        with pytest.raises(og.errors.InvalidInput) as error:
            clique.query(paths(hops, outputs))
        assert str(error.value).splitlines()[0] == "column 'n': count exceeds I64"
        assert error.value.details == {"function": "count", "column": "n"}


@pytest.mark.usefixtures("projection")
def test_sum_over_paths_beyond_64_bits_is_exact_before_rounding(clique: og.LocalGraph) -> None:
    outputs = "sum($v0.age) as s  avg($v0.age) as a"
    for hops in (9, 12):
        (row,) = clique.query(paths(hops, outputs)).rows()
        assert row == {"s": float(NODES * 99**hops * 2**62), "a": float(2**62)}


@pytest.mark.usefixtures("projection")
def test_count_of_few_paths_of_a_pattern_with_many_is_exact(clique: og.LocalGraph) -> None:
    """A weight beyond 64 bits does not matter for the groups that remain."""
    nothing = clique.query(paths(12, "count($v0) as n", "not { $v12 knows $v13 }")).rows()
    assert nothing == [{"n": 0}]
