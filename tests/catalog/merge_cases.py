"""Cases of schema merges: merge base, ours and theirs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.identity import next_identities
from omnigraph.catalog.migration.renames import match_schemas
from omnigraph.catalog.schema_merge.merge import MergedCatalog, merge_catalogs
from omnigraph.catalog.schema_merge.three_way import Side
from omnigraph.lang.pg.schema_compiler import load_schema
from tests.catalog.test_identity import catalog_of


def grown(base: Catalog, text: str, *, counter: int = 1) -> Catalog:
    """Return the catalog after any change, including changes that no plan supports."""
    if text == base.source:
        return base
    schema = load_schema(text)
    matching = match_schemas(base.schema, schema)
    return Catalog(text, schema, next_identities(base.identities, schema, matching, counter=counter))


@dataclass(frozen=True)
class Three:
    base: Catalog
    ours: Catalog
    theirs: Catalog

    def merge(self) -> MergedCatalog:
        return merge_catalogs(self.base, self.ours, self.theirs)

    def merge_all(self, side: Side) -> MergedCatalog:
        ids = {item.id: side for item in self.merge().conflicts}
        return merge_catalogs(self.base, self.ours, self.theirs, choose=ids)


def three(base: str, ours: str, theirs: str) -> Three:
    first = catalog_of(base)
    one = grown(first, ours)
    return Three(first, one, grown(first, theirs, counter=one.next_id))


FACES = "interface F { f: I32? }  interface G { g: I32? }  "
ENDS = "node A { x: I32 }  node B { x: I32 }  node C { x: I32 }  "

Case: TypeAlias = tuple[str, str, str, list[tuple[str, str]]]

# Name, merge base, ours, theirs, and the expected conflicts.
CASES: dict[str, Case] = {
    "name of a type": (
        "node A { x: I32 }",
        'node B @rename_from("A") { x: I32 }',
        'node C @rename_from("A") { x: I32 }',
        [("node:A", "name")],
    ),
    "name of a property": (
        "node A { x: I32 }",
        'node A { y: I32 @rename_from("x") }',
        'node A { z: I32 @rename_from("x") }',
        [("node:A.x", "name")],
    ),
    "type of a property": (
        "node A { x: I32 }", "node A { x: I64 }", "node A { x: F64 }", [("node:A.x", "type")],
    ),
    "values of an enum": (
        "node A { x: enum(a, b) }",
        "node A { x: enum(a, b, c) }",
        "node A { x: enum(a) }",
        [("node:A.x", "type")],
    ),
    "annotations of a type": (
        'node A @owner("a") { x: I32 }',
        'node A @owner("b") { x: I32 }',
        'node A @owner("c") { x: I32 }',
        [("node:A", "annotations")],
    ),
    "annotations of a property": (
        "node A { x: I32 }",
        'node A { x: I32 @description("b") }',
        'node A { x: I32 @description("c") }',
        [("node:A.x", "annotations")],
    ),
    "annotations of another type of number": (
        "node A { x: I32 @weight(1) }",
        "node A { x: I32 @weight(1.0) }",
        "node A { x: I32 @weight(true) }",
        [("node:A.x", "annotations")],
    ),
    "source of an embedding": (
        "node A { s: String  t: String  v: Vector(3) }",
        "node A { s: String  t: String  v: Vector(3) @embed(s) }",
        "node A { s: String  t: String  v: Vector(3) @embed(t) }",
        [("node:A.v", "annotations")],
    ),
    "bounds": (
        "node A { x: I32\n @range(x, 0..1) }",
        "node A { x: I32\n @range(x, 0..2) }",
        "node A { x: I32\n @range(x, 0..3) }",
        [("node:A", "constraints")],
    ),
    "pattern": (
        "node A { x: String }",
        'node A { x: String\n @check(x, "a") }',
        'node A { x: String\n @check(x, "b") }',
        [("node:A", "constraints")],
    ),
    "key": (
        "node A { x: I32  y: I32 }",
        "node A { x: I32  y: I32\n @key(x) }",
        "node A { x: I32  y: I32\n @key(y) }",
        [("node:A", "constraints")],
    ),
    "endpoints": (
        ENDS + "edge E: A -> A",
        ENDS + "edge E: A -> B",
        ENDS + "edge E: A -> C",
        [("edge:E", "endpoints")],
    ),
    "cardinality": (
        ENDS + "edge E: A -> A",
        ENDS + "edge E: A -> A @card(0..1)",
        ENDS + "edge E: A -> A @card(1..)",
        [("edge:E", "cardinality")],
    ),
    "implements": (
        FACES + "node A { x: I32 }",
        FACES + "node A implements F { x: I32 }",
        FACES + "node A implements G { x: I32 }",
        [("node:A", "implements")],
    ),
    "existence of a type that is changed": (
        "node A { x: I32 }  node B { x: I32 }",
        "node A { x: I32 }",
        "node A { x: I32 }  node B { x: I32  y: I32? }",
        [("node:B", "existence")],
    ),
    "existence of a type that is renamed": (
        "node A { x: I32 }  node B { x: I32 }",
        "node A { x: I32 }",
        'node A { x: I32 }  node C @rename_from("B") { x: I32 }',
        [("node:B", "existence")],
    ),
    "existence of a type that a new edge needs": (
        "node A { x: I32 }  node B { x: I32 }",
        "node A { x: I32 }",
        "node A { x: I32 }  node B { x: I32 }  edge E: A -> B { w: F64? }",
        [("node:B", "existence")],
    ),
    "existence of a type and its edge": (
        "node A { x: I32 }  node B { x: I32 }  edge E: A -> B",
        "node A { x: I32 }  node B { x: I32 }  edge E: A -> B @card(0..1)",
        "node A { x: I32 }",
        [("edge:E", "existence"), ("node:B", "existence")],
    ),
    "existence of an interface that a node takes up": (
        "interface F { f: I32? }  node A { x: I32 }",
        "node A { x: I32 }",
        "interface F { f: I32? }  node A implements F { x: I32 }",
        [("interface:F", "existence")],
    ),
    "existence of a property that is changed": (
        "node A { x: I32  y: I32 }",
        "node A { x: I32 }",
        "node A { x: I32  y: I32 @index }",
        [("node:A.y", "existence")],
    ),
    "existence of a property that a new constraint needs": (
        "node A { x: I32  y: I32 }",
        "node A { x: I32 }",
        "node A { x: I32  y: I32\n @index(x, y) }",
        [("node:A.y", "existence")],
    ),
    "existence of a property that an embedding is made from": (
        "node A { x: String  v: Vector(2) }",
        "node A { v: Vector(2) }",
        "node A { x: String  v: Vector(2) @embed(x) }",
        [("node:A.x", "existence")],
    ),
    "a new type under the name of a renamed one": (
        "node A { x: I32 }",
        'node B @rename_from("A") { x: I32 }',
        "node A { x: I32 }  node B { y: I32 }",
        [("node:B", "name")],
    ),
    "two types renamed to one name": (
        "node A { x: I32 }  node B { y: I32 }",
        'node C @rename_from("A") { x: I32 }  node B { y: I32 }',
        'node A { x: I32 }  node C @rename_from("B") { y: I32 }',
        [("node:C", "name")],
    ),
    "a new type with edges under the name of a renamed one": (
        "node A { x: I32 }",
        'node B @rename_from("A") { x: I32 }',
        "node A { x: I32 }  node B { y: I32 }  edge E: B -> B",
        [("node:B", "name")],
    ),
    "new edges whose names differ in case": (
        "node A { x: I32 }",
        "node A { x: I32 }  edge Knows: A -> A",
        "node A { x: I32 }  edge KNOWS: A -> A { w: F64? }",
        [("edge:KNOWS", "name")],
    ),
    "a new property under the name of a renamed one": (
        "node A { x: I32 }",
        'node A { y: I32 @rename_from("x") }',
        "node A { x: I32  y: String?\n @index(y) }",
        [("node:A.y", "name")],
    ),
    "a type that both add": (
        ENDS,
        ENDS + 'node N @description("a") { p: I32 @index  q: I32?\n @range(p, 0..1) }  edge M: A -> B',
        ENDS + 'node N @description("b") { p: I64?  q: I32? }'
        + "edge M: B -> A @card(1..)",
        [
            ("edge:M", "cardinality"),
            ("edge:M", "endpoints"),
            ("node:N", "annotations"),
            ("node:N", "constraints"),
            ("node:N.p", "annotations"),
            ("node:N.p", "type"),
        ],
    ),
    "a property that both add": (
        "node A { x: I32 }",
        "node A { x: I32  y: I32? }",
        "node A { x: I32  y: I64? }",
        [("node:A.y", "type")],
    ),
}  # fmt: skip

# Schemas that merge without conflicts: merge base, ours, theirs, and the result.
PEACEFUL = {
    "both extend an enum": (
        "node A { x: enum(m) }",
        "node A { x: enum(a, m) }",
        "node A { x: enum(m, z)? }",
        "node A { x: enum(a, m, z)? }",
    ),
    "one widens a type that the other makes nullable": (
        "node A { x: I32 }", "node A { x: I64 }", "node A { x: I32? }", "node A { x: I64? }",
    ),
    "different annotations of one property": (
        'node A { x: I32 @description("a") }',
        'node A { x: I32 @description("b") }',
        'node A { x: I32 @description("a") @index }',
        'node A { x: I32 @description("b") @index }',
    ),
    "constraints are added and removed one by one": (
        "node A { x: I32  y: I32\n @index(x) @range(x, 0..1) }",
        "node A { x: I32  y: I32\n @index(x) @index(y) @range(x, 0..1) }",
        "node A { x: I32  y: I32\n @unique(y) @range(x, 0..2) }",
        "node A { x: I32  y: I32\n @index(y) @unique(y) @range(x, 0..2) }",
    ),
    "a type is renamed while the other side adds to it": (
        "node A { x: I32 }  edge E: A -> A",
        'node B @rename_from("A") { x: I32 }  edge E: B -> B',
        "node A { x: I32  y: I32? }  edge E: A -> A  edge F: A -> A",
        "node B { x: I32  y: I32? }  edge E: B -> B  edge F: B -> B",
    ),
    "a property is renamed while the other side refers to it": (
        "node A { s: String  v: Vector(2)\n @index(s) }",
        'node A { t: String @rename_from("s")  v: Vector(2)\n @index(t) }',
        'node A { s: String  v: Vector(2) @embed(s)\n @index(s) @unique(s) @check(s, "a") }',
        'node A { t: String  v: Vector(2) @embed(t)\n @index(t) @unique(t) @check(t, "a") }',
    ),
    "the source of an embedding is renamed while the other side changes its model": (
        "node A { s: String  v: Vector(2) @embed(s) }",
        'node A { t: String @rename_from("s")  v: Vector(2) @embed(t) }',
        'node A { s: String  v: Vector(2) @embed(s, model="m") }',
        'node A { t: String  v: Vector(2) @embed(t, model="m") }',
    ),
    "names move on": (
        "node A { x: I32 }",
        'node B @rename_from("A") { x: I32 }',
        "node A { x: I32 }  node C { y: I32 }",
        "node B { x: I32 }  node C { y: I32 }",
    ),
    "each side drops what the other leaves alone": (
        "node A { x: I32  y: I32 }  node B { x: I32 }  edge E: A -> B",
        "node A { x: I32  y: I32 }",
        "node A { x: I32 }  node B { x: I32 }  edge E: A -> B",
        "node A { x: I32 }",
    ),
    "both drop the same": (
        "node A { x: I32  y: I32 }  node B { x: I32 }",
        "node A { x: I32 }",
        "node A { x: I32  z: I32? }",
        "node A { x: I32  z: I32? }",
    ),
    "an interface gains a property while the other side takes it up": (
        "interface F { f: I32? }  node A { x: I32 }",
        "interface F { f: I32?  g: I32? }  node A { x: I32 }",
        "interface F { f: I32? }  node A implements F { x: I32 }  node B implements F { }",
        "interface F { f: I32?  g: I32? }  node A implements F { x: I32 }  node B implements F { }",
    ),
    "an inherited property is renamed while the other side refers to it": (
        "interface F { f: String }  node A implements F { }",
        'interface F { g: String @rename_from("f") }  node A implements F { }',
        "interface F { f: String }  node A implements F {\n @index(f) }",
        "interface F { g: String }  node A implements F {\n @index(g) }",
    ),
    "a node declares what it inherited": (
        "interface F { f: enum(a) }  node A implements F { }",
        "interface F { f: enum(a) }  node A implements F { f: enum(a) @index }",
        "interface F { f: enum(a, b) }  node A implements F { }",
        "interface F { f: enum(a, b) }  node A implements F { f: enum(a, b) @index }",
    ),
    "a node declares what its interface gains": (
        "interface F { f: I32? }  node A implements F { }",
        "interface F { f: I32?  g: I32? }  node A implements F { }",
        "interface F { f: I32? }  node A implements F { g: I32? }",
        "interface F { f: I32?  g: I32? }  node A implements F { g: I32? }",
    ),
    "both add a type with more or less in it": (
        "node A { x: I32 }",
        "node A { x: I32 }  node N { p: I32  q: I32? }",
        "node A { x: I32 }  node N { p: I32  r: I32? }",
        "node A { x: I32 }  node N { p: I32  q: I32?  r: I32? }",
    ),
}  # fmt: skip
