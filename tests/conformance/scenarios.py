"""Scenarios of calls that run against a local graph and a served one."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import omnigraph as og
from tests.conformance.recording import Recorder

Scenario: TypeAlias = Callable[[Recorder, og.Graph, Path], None]

SCHEMA = """\
node Person {
    name: String @key
    age: I32?
    big: U64?
    score: F32?
    born: Date?
    seen: DateTime?
    tags: [String]?
    shape: Vector(3)?
    photo: Blob?
    mood: enum(good, bad)?
    @range(age, 0..150)
}
node Note { text: String }
edge Knows: Person -> Person { since: I32? }
edge Wrote: Person -> Note
"""
PEOPLE = [
    {
        "name": "Ann",
        "age": 30,
        "big": 2**64 - 1,
        "score": 0.1,
        "born": "1990-02-03",
        "seen": "2024-01-01T12:00:00Z",
        "tags": ["a", "b"],
        "shape": [1.0, 0.0, 0.5],
        "photo": "base64:aGVsbG8=",
        "mood": "good",
    },
    {"name": "Bob", "age": 25, "tags": []},
    {"name": "Cy", "score": -1.5},
]
KNOWS = [
    {"from": "Ann", "to": "Bob", "since": 2001},
    {"from": "Bob", "to": "Cy"},
    {"from": "Ann", "to": "Cy", "since": 2010},
]
ALL = """query all() { match { $p: Person } return { $p.name as name, $p.age as age, $p.big as big,
    $p.score as score, $p.born as born, $p.seen as seen, $p.tags as tags, $p.shape as shape,
    $p.mood as mood } order { name asc } }"""
NAMES = "query names() { match { $p: Person } return { $p.name as name } order { name asc } }"
ADD = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
SET = "query set($n: String, $a: I32?) { update Person set { age: $a } where name = $n }"
DROP = "query drop($n: String) { delete Person where name = $n }"
FRIENDS = """query friends($n: String) { match { $p: Person { name: $n }  $p knows{1,2} $q }
    return { $q.name as name } order { name asc } }"""


NEAR = """query near($v: Vector(3)) { match { $p: Person } return { $p.name as n }
    order { nearest($p.shape, $v) } limit 1 }"""


def fill(g: og.Graph) -> None:
    """Load the initial data of every scenario."""
    g.load({"Person": PEOPLE, "Knows": KNOWS}, message="begin")


def reads(rec: Recorder, g: og.Graph, _: Path) -> None:
    first = g.commits()[0].id
    rec.do("all", lambda: g.query(ALL))
    rec.do("all again at the commit", lambda: g.query(ALL, at=first))
    rec.do("hops", lambda: g.query(FRIENDS, {"n": "Ann"}))
    rec.do("counts", lambda: g.query("query c() { match { $p: Person } return { count($p) as n } }"))
    rec.do("nothing", lambda: g.query(FRIENDS, {"n": "Nobody"}))
    two = f"{NAMES}\n{ALL}"
    rec.do("one of two", lambda: g.query(two, name="names"))
    rec.do("two and no name", lambda: g.query(two))
    rec.do("no such name", lambda: g.query(two, name="nmes"))
    rec.do("a mutation", lambda: g.query(ADD, {"n": "X"}))
    rec.do("no parameter", lambda: g.query(FRIENDS))
    rec.do("wrong parameter", lambda: g.query(FRIENDS, {"n": 3}))
    rec.do("too many parameters", lambda: g.query(FRIENDS, {"n": "Ann", "m": 1}))
    rec.do("not parameters", lambda: g.query(FRIENDS, ["Ann"]))  # type: ignore[arg-type]
    rec.do("a wrong text", lambda: g.query("query q( { match"))
    rec.do("wrong types", lambda: g.query("query q() { match { $p: Persn } return { $p.nme, $q.age } }"))
    rec.do("no text", lambda: g.query(""))
    rec.do("no branch", lambda: g.query(ALL, branch="nope"))
    rec.do("a bad branch", lambda: g.query(ALL, branch="a..b"))
    rec.do("no commit", lambda: g.query(ALL, at="01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    rec.do("before the beginning", lambda: g.query(ALL, at=datetime(2001, 1, 1, tzinfo=UTC)))
    rec.do("a moment", lambda: g.query(NAMES, at=datetime.now(UTC) + timedelta(seconds=5)))
    rec.do("a snapshot", lambda: g.query(NAMES, at=g.snapshot()))
    rec.do("plan", lambda: g.explain(FRIENDS, {"n": "Ann"}))
    rec.do("plan of nothing", lambda: g.explain("query"))
    born = "query born($d: Date) { match { $p: Person  $p.born >= $d } return { $p.name as name } }"
    rec.do("dates", lambda: g.query(born, {"d": date(1990, 1, 1)}))
    rec.do("dates as text", lambda: g.query(born, {"d": "1990-01-01"}))
    rec.do("vectors", lambda: g.query(NEAR, {"v": np.array([1, 0, 0.5], np.float32)}))
    rec.do("vectors of another length", lambda: g.query(NEAR, {"v": [1.0]}))
    big = "query big($b: U64) { match { $p: Person  $p.big = $b } return { $p.name as n, $p.big as b } }"
    rec.do("large numbers", lambda: g.query(big, {"b": 2**64 - 1}))
    rec.do("too large numbers", lambda: g.query(big, {"b": 2**64}))


def entities(rec: Recorder, g: og.Graph, _: Path) -> None:
    rec.do("a node", lambda: g.get("Person", "Ann"))
    rec.do("nobody", lambda: g.get("Person", "Zed"))
    rec.do("no type", lambda: g.get("Persn", "Ann"))
    rec.do("odd ids", lambda: [g.get("Person", id_) for id_ in ("", "a/b", "é ü", "a?b=c&d", "%2F", "'\"")])
    rec.do("on no branch", lambda: g.get("Person", "Ann", branch="nope"))
    rec.do("at a commit", lambda: g.get("Person", "Ann", at=g.commits()[0].id))
    rec.do("at the first commit", lambda: g.get("Person", "Ann", at=g.commits()[-1].id))
    rec.do("snapshot", lambda: g.snapshot())
    rec.do("snapshot of the first", lambda: g.snapshot(at=g.commits()[-1].id))
    rec.do("snapshot of nothing", lambda: g.snapshot("nope"))
    rec.do("its schema", lambda: g.snapshot().schema)
    rec.do("indexes", lambda: g.indexes())
    rec.do("schema", lambda: g.schema.source())
    rec.do("schema of nothing", lambda: g.schema.source("nope"))


def mutations(rec: Recorder, g: og.Graph, _: Path) -> None:
    head = g.commits()[0].id
    rec.do("insert", lambda: g.mutate(ADD, {"n": "Dee", "a": 40}, message="one more"))
    rec.do("insert the same", lambda: g.mutate(ADD, {"n": "Dee", "a": 41}))
    rec.do("update", lambda: g.mutate(SET, {"n": "Dee", "a": 42}))
    rec.do("update nobody", lambda: g.mutate(SET, {"n": "Zed", "a": 42}))
    rec.do("out of range", lambda: g.mutate(SET, {"n": "Dee", "a": 151}))
    rec.do("delete with edges", lambda: g.mutate(DROP, {"n": "Bob"}))
    rec.do("a read", lambda: g.mutate(NAMES))
    rec.do("lost condition", lambda: g.mutate(ADD, {"n": "Eve"}, if_commit=head))
    now = g.commits()[0].id
    rec.do("kept condition", lambda: g.mutate(ADD, {"n": "Eve"}, if_commit=now))
    rec.do("with a key", lambda: g.mutate(ADD, {"n": "Fay"}, idempotency_key="k1"))
    rec.do("with the key again", lambda: g.mutate(ADD, {"n": "Fay"}, idempotency_key="k1"))
    rec.do("the key for something else", lambda: g.mutate(ADD, {"n": "Gus"}, idempotency_key="k1"))
    two = 'query two() { insert Person { name: "H" }  insert Note { text: "t" } }'
    rec.do("two types", lambda: g.mutate(two))
    edge = 'query e() { insert Knows { from: "Ann", to: "Nobody" } }'
    rec.do("an edge to nobody", lambda: g.mutate(edge))
    rec.do("on no branch", lambda: g.mutate(ADD, {"n": "X"}, branch="nope"))
    rec.do("afterwards", lambda: g.query(ALL))
    rec.do("history", lambda: g.commits())
    rec.do("history of two", lambda: g.commits(limit=2))
    rec.do("history of nobody", lambda: g.commits(actor="nobody"))
    rec.do("history of nothing", lambda: g.commits("nope"))
    rec.do("a commit", lambda: g.commit(g.commits()[0].id))
    rec.do("no commit", lambda: g.commit("01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    rec.do("not an id", lambda: g.commit("../x"))


def branches(rec: Recorder, g: og.Graph, _: Path) -> None:
    first = g.commits()[-1].id
    rec.do("list", lambda: g.branches.list())
    rec.do("create", lambda: g.branches.create("review/x"))
    rec.do("create again", lambda: g.branches.create("review/x"))
    rec.do("create from nothing", lambda: g.branches.create("y", "nope"))
    rec.do("create at a commit", lambda: g.branches.create("old", at=first))
    rec.do(
        "create at a moment", lambda: g.branches.create("then", at=datetime.now(UTC) + timedelta(seconds=5))
    )
    rec.do("bad name", lambda: g.branches.create("a..b"))
    rec.do("old is empty", lambda: g.query(NAMES, branch="old"))
    g.mutate(ADD, {"n": "Dee"}, branch="review/x")
    rec.do("only there", lambda: (g.get("Person", "Dee", branch="review/x"), g.get("Person", "Dee")))
    rec.do("merge dry", lambda: g.branches.merge("review/x", dry_run=True))
    rec.do("merge", lambda: g.branches.merge("review/x", message="in"))
    rec.do("merge again", lambda: g.branches.merge("review/x"))
    g.mutate(SET, {"n": "Ann", "a": 31}, branch="review/x")
    g.mutate(SET, {"n": "Ann", "a": 32})
    rec.do("conflict", lambda: g.branches.merge("review/x"))
    rec.do("conflict dry", lambda: g.branches.merge("review/x", dry_run=True))
    rec.do("wrong side", lambda: g.branches.merge("review/x", resolve="mine"))
    rec.do("wrong answer", lambda: g.branches.merge("review/x", resolve={"nothing": "ours"}))
    rec.do("lost condition", lambda: g.branches.merge("review/x", resolve="ours", if_commit=first))
    told = g.branches.merge("review/x", dry_run=True).conflicts
    answers = {item["id"]: {"value": 50} for item in told}
    rec.do("answered", lambda: g.branches.merge("review/x", resolve=answers, delete_source=True))
    rec.do("value", lambda: g.get("Person", "Ann"))
    rec.do("into itself", lambda: g.branches.merge("main"))
    rec.do("from nothing", lambda: g.branches.merge("nope"))
    rec.do("undo", lambda: g.revert(g.commits()[0].id))
    rec.do("undo the first", lambda: g.revert(first))
    rec.do("undo nothing", lambda: g.revert("01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    rec.do("delete", lambda: g.branches.delete("old"))
    rec.do("delete again", lambda: g.branches.delete("old"))
    rec.do("delete main", lambda: g.branches.delete("main"))
    rec.do("left", lambda: g.branches.list())


def changes(rec: Recorder, g: og.Graph, folder: Path) -> None:
    cursor = g.feed().cursor
    g.branches.create("trial")
    done = g.mutate(SET, {"n": "Ann", "a": 33}, branch="trial").commit
    assert done is not None
    g.mutate(DROP, {"n": "Cy"}, branch="trial")
    rec.do("diff", lambda: g.diff("main", "trial"))
    rec.do("diff counted", lambda: g.diff("main", "trial").stats())
    rec.do("diff outlined", lambda: g.diff("main", "trial").to_json())
    rec.do("only edges", lambda: g.diff("main", "trial", kinds=["edge"], ops=["delete"]))
    rec.do("no such type", lambda: g.diff("main", "trial", types=["Nobody"]))
    rec.do("no such op", lambda: g.diff("main", "trial", ops=["move"]))  # type: ignore[list-item]
    rec.do("no such state", lambda: g.diff("main", "nope"))
    rec.do("of snapshots", lambda: g.diff(g.snapshot(), g.snapshot("trial")))
    rec.do("of moments", lambda: g.diff(datetime.now(UTC) + timedelta(seconds=5), "trial"))
    kept = g.diff("main", "trial")
    g.mutate(ADD, {"n": "Late"}, branch="trial")
    rec.do("a difference stays what it was", lambda: list(kept))
    rec.do("of a commit", lambda: g.changes(done.id))
    rec.do("a page", lambda: g.changes(g.commits(branch="trial")[1].id, limit=1))
    rec.do("the first commit", lambda: g.changes(g.commits()[-1].id))
    rec.do("no commit", lambda: g.changes("01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    rec.do("no rows a page", lambda: g.changes(done.id, limit=0))
    rec.do("a bad token", lambda: g.changes(done.id, page_token="x"))
    g.branches.merge("trial")
    rec.do("feed", lambda: g.feed(cursor=cursor))
    rec.do("feed from the beginning", lambda: g.feed(start="beginning", types=["Person"]))
    rec.do("feed in steps", lambda: g.feed(cursor=cursor, max_commits=1))
    rec.do("a bad cursor", lambda: g.feed(cursor="x"))
    rec.do("a bad start", lambda: g.feed(start="then"))
    rec.do("both", lambda: g.feed(start="beginning", cursor=cursor))
    text = io.StringIO()
    rec.do("baseline", lambda: g.baseline(text))
    rec.do("its records", lambda: [json.loads(line) for line in text.getvalue().splitlines()[:-1]])
    rec.do("baseline to a file", lambda: g.baseline(folder / "base.ndjson", kinds=["node"]))
    rec.do("its size", lambda: len((folder / "base.ndjson").read_text().splitlines()))
    rec.do("baseline of nothing", lambda: g.baseline(io.StringIO(), branch="nope"))


def schemas(rec: Recorder, g: og.Graph, _: Path) -> None:
    more = SCHEMA.replace("node Note {", "node Note { title: String?")
    rec.do("plan", lambda: g.schema.plan(more))
    rec.do("plan of the same", lambda: g.schema.plan(SCHEMA))
    rec.do("plan of a wrong text", lambda: g.schema.plan("node {"))
    rec.do("apply", lambda: g.schema.apply(more, message="titles"))
    rec.do("apply again", lambda: g.schema.apply(more))
    rec.do("source", lambda: g.schema.source())
    required = more.replace("age: I32?", "age: I32")
    rec.do("refused", lambda: g.schema.apply(required))
    filled = more.replace("name: String @key", "name: String @key\n    label: String\n    rank: I64")
    rec.do("no values", lambda: g.schema.apply(filled))
    values = {"Person.label": og.expr("$this.name"), "Person.rank": 7}
    rec.do("plan with values", lambda: g.schema.plan(filled, backfill=values))
    rec.do("wrong values", lambda: g.schema.apply(filled, backfill={**values, "Person.rank": "x"}))
    rec.do("values", lambda: g.schema.apply(filled, backfill=values))
    rec.do("filled", lambda: g.get("Person", "Ann"))
    g.branches.create("side")
    rec.do("drop on a branch", lambda: g.schema.apply(more, branch="side"))
    rec.do("lost condition", lambda: g.schema.apply(more, if_commit=g.commits()[-1].id))
    rec.do("for good", lambda: g.schema.apply(more, allow_data_loss=True))
    rec.do("on no branch", lambda: g.schema.apply(more, branch="nope"))


def loads(rec: Recorder, g: og.Graph, folder: Path) -> None:
    records = [{"type": "Person", "data": {"name": f"P{i}", "age": i}} for i in range(20)]
    lines = "".join(json.dumps(item) + "\n" for item in records)
    (folder / "in").mkdir()
    (folder / "in" / "a.ndjson").write_text(lines)
    (folder / "in" / "b.ndjson").write_text('{"edge":"Knows","from":"P1","to":"P2"}\n')
    (folder / "bad.ndjson").write_text(
        lines + '{"type":"Person","data":{"name":"Q","age":"x"}}\n{"type":"No"}\n'
    )
    (folder / "people.csv").write_text("name,age\nCsv1,1\nCsv2,\n")
    (folder / "wrong.csv").write_text("name,age\nW1,1\nW2,old\n")
    pq.write_table(pa.table({"name": ["Pq1"], "age": pa.array([5], pa.int32())}), folder / "people.parquet")
    rec.do("a folder", lambda: g.load(folder / "in"))
    rec.do("twice", lambda: g.load(folder / "in"))
    rec.do("merge", lambda: g.load(str(folder / "in" / "*.ndjson"), mode="merge"))
    rec.do("bad records", lambda: g.load(folder / "bad.ndjson", mode="merge"))
    rejects: list[Any] = []
    rec.do("rejects", lambda: g.load(folder / "bad.ndjson", mode="merge", rejects=rejects.append))
    rec.do("rejected", lambda: rejects)
    rec.do(
        "rejects to a file", lambda: g.load(folder / "bad.ndjson", mode="merge", rejects=folder / "r.ndjson")
    )
    rec.do(
        "what it says", lambda: [json.loads(line) for line in (folder / "r.ndjson").read_text().splitlines()]
    )
    rec.do("csv", lambda: g.load({"Person": folder / "people.csv"}))
    rec.do("wrong csv", lambda: g.load({"Person": folder / "wrong.csv"}))
    rec.do("parquet", lambda: g.load({"Person": str(folder / "people.parquet")}))
    rec.do("arrow", lambda: g.load({"Person": pa.table({"name": ["Ar"], "tags": [["x", "y"]]})}))
    rec.do("pandas", lambda: g.load({"Person": pd.DataFrame({"name": ["Pa"], "born": [date(2000, 1, 2)]})}))
    rec.do("polars", lambda: g.load({"Person": pl.DataFrame({"name": ["Po"], "score": [0.25]})}))
    rows = [{"name": "Di", "born": date(2000, 1, 2), "photo": b"raw", "shape": np.ones(3, np.float32)}]
    rec.do("dicts", lambda: g.load({"Person": rows}))
    rec.do("records", lambda: g.load(iter([{"type": "Note", "data": {"text": "hi"}}])))
    rec.do("a stream", lambda: g.load(io.BytesIO(b'{"type":"Person","data":{"name":"St"}}\n')))
    loose = b'{"type":"Person",\n "data":{"name":"Lo"}} {"type":"Person","data":{"name":"Li"}}'
    rec.do("strict", lambda: g.load(io.BytesIO(loose)))
    rec.do("permissive", lambda: g.load(io.BytesIO(loose), permissive=True))
    rec.do("dry", lambda: g.load({"Person": [{"name": "Dry"}]}, dry_run=True))
    rec.do("new branch", lambda: g.load({"Person": [{"name": "Nb"}]}, branch="nb", create_from="main"))
    rec.do("no branch", lambda: g.load({"Person": [{"name": "Nb"}]}, branch="nope"))
    rec.do("lost condition", lambda: g.load({"Person": [{"name": "X"}]}, if_commit=g.commits()[-1].id))
    rec.do("a key", lambda: g.load({"Person": [{"name": "K"}]}, idempotency_key="load"))
    rec.do("the key again", lambda: g.load({"Person": [{"name": "K"}]}, idempotency_key="load"))
    rec.do("no mode", lambda: g.load({"Person": []}, mode="insert"))  # type: ignore[arg-type]
    rec.do("no type", lambda: g.load({"Persn": []}))
    rec.do("no file", lambda: g.load("nowhere.ndjson"))
    rec.do("a table alone", lambda: g.load(pa.table({"name": ["x"]})))
    rec.do("a number", lambda: g.load(7))
    mapping = {"Person": {"columns": {"name": "who"}}}
    rec.do("mapped", lambda: g.load({"Person": [{"who": "Mapped"}]}, mapping=mapping))
    rec.do("mapped nothing", lambda: g.load({}, mapping=mapping))
    rec.do("overwrite", lambda: g.load({"Note": [{"text": "only"}]}, mode="overwrite"))
    rec.do("afterwards", lambda: g.query(ALL))
    rec.do("photo", lambda: g.get("Person", "Di"))


def exports(rec: Recorder, g: og.Graph, folder: Path) -> None:
    text = io.StringIO()
    rec.do("a stream", lambda: g.export(text))
    rec.do("its records", lambda: [json.loads(line) for line in text.getvalue().splitlines()])
    rec.do("a file", lambda: g.export(folder / "all.ndjson", types=["Person"]))
    rec.do("its lines", lambda: (folder / "all.ndjson").read_text().splitlines())
    rec.do("at the first", lambda: g.export(io.StringIO(), at=g.commits()[-1].id))
    rec.do("no type", lambda: g.export(io.StringIO(), types=["Nobody"]))
    rec.do("no branch", lambda: g.export(io.StringIO(), branch="nope"))
    rec.do("parquet", lambda: g.export(f"{folder}/pq/", format="parquet"))
    rec.do(
        "its files",
        lambda: sorted(str(p.relative_to(folder)) for p in (folder / "pq").rglob("*") if p.is_file()),
    )
    rec.do("its rows", lambda: pq.read_table(next((folder / "pq" / "nodes" / "Person").glob("*.parquet"))))
    rec.do("again", lambda: g.export(f"{folder}/pq/", format="parquet"))
    rec.do("over it", lambda: g.export(f"{folder}/pq/", format="parquet", overwrite=True, types=["Note"]))
    rec.do("parquet to a stream", lambda: g.export(io.StringIO(), format="parquet"))
    rec.do("no format", lambda: g.export(io.StringIO(), format="xml"))  # type: ignore[arg-type]
    rec.do("what is left", lambda: sorted(p.name for p in folder.iterdir()))


def maintenance(rec: Recorder, g: og.Graph, _: Path) -> None:
    for number in range(3):
        g.mutate(ADD, {"n": f"M{number}"})
    rec.do("optimize", lambda: g.optimize(message="tidy"))
    rec.do("optimize again", lambda: g.optimize())
    rec.do("optimize nothing", lambda: g.optimize(branch="nope"))
    rec.do("indexes", lambda: g.indexes())
    rec.do("repair", lambda: g.repair())
    rec.do("repair for good", lambda: g.repair(confirm=True))
    rec.do("cleanup without a rule", lambda: g.cleanup())
    rec.do("cleanup with a wrong rule", lambda: g.cleanup(older_than="soon"))
    rec.do("cleanup", lambda: sorted(g.cleanup(keep=2)))
    rec.do("all there", lambda: g.query(NAMES))


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        reads,
        entities,
        mutations,
        branches,
        changes,
        schemas,
        loads,
        exports,
        maintenance,
    )
}
