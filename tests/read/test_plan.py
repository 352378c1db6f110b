"""Plans: where a pattern is begun, what is counted instead of visited, and what may not change places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from omnigraph.budget.deadline import time_limit
from omnigraph.errors import ResourceLimit
from omnigraph.lang import ir
from omnigraph.lang.gq.check import check_query
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.lang.source import Source
from omnigraph.read.plan import (
    AntiJoinStep,
    ExpandStep,
    FilterStep,
    OptionalStep,
    PlanStep,
    ReadPlan,
    ScanStep,
)
from omnigraph.read.read_planner import plan_read

SCHEMA = load_schema("""
node Person { name: String @key  age: I32?  mail: String? @unique }
node Firm { code: I64 @key  city: String? }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Firm
edge Rates: Person -> Firm { @key(src, dst) }
""")


@dataclass(frozen=True)
class TableSizes:
    """Many people, few firms."""

    counts: dict[str, int] = field(
        default_factory=lambda: {
            "Person": 100_000,
            "Firm": 100,
            "Knows": 1_000_000,
            "WorksAt": 100_000,
            "Rates": 100_000,
        }
    )

    def nodes(self, type_name: str) -> int:
        return self.counts[type_name]

    def edges(self, edge_type: str) -> int:
        return self.counts[edge_type]

    def near_nodes(self, edge_type: str, direction: ir.Direction) -> int:
        edge = SCHEMA.edge(edge_type)
        assert edge is not None
        return self.counts[edge.target if direction == "in" else edge.source]

    def is_key(self, type_name: str, properties: frozenset[str]) -> bool:
        return bool({"Person": {"name", "mail"}, "Firm": {"code"}}[type_name] & properties)

    def has_pair_key(self, edge_type: str) -> bool:
        return edge_type == "Rates"


def plan_of(body: str, **counts: int) -> ReadPlan:
    source = Source(f"query q($n: String) {{ {body} }}", "query")
    query = check_query(parse_queries(source).queries[0], SCHEMA, source)
    assert isinstance(query, ir.ReadQuery)
    return plan_read(query, TableSizes({**TableSizes().counts, **counts}))


def shape(steps: Sequence[PlanStep]) -> list[str]:
    """The steps in a few letters each."""
    found = []
    for step in steps:
        match step:
            case ScanStep():
                found.append(f"scan {step.variable}")
            case ExpandStep():
                expand = step.expand
                verb = "close" if expand.target_bound else "walk"
                found.append(f"{verb} {expand.source} {expand.direction} {expand.target}")
            case FilterStep():
                found.append("check")
            case AntiJoinStep():
                found.append(f"without [{'; '.join(shape(step.steps))}]")
            case OptionalStep():
                found.append(f"maybe [{'; '.join(shape(step.steps))}]")
    return found


def test_a_pattern_begins_at_the_variable_with_a_key_wherever_it_is_written() -> None:
    first = plan_of("match { $a: Person { name: $n }  $a knows $b } return { $b.name }")
    last = plan_of("match { $b: Person  $a: Person  $a knows $b  $a.name = $n } return { $b.name }")
    assert shape(first.steps) == shape(last.steps) == ["scan a", "walk a out b"]


def test_an_edge_is_followed_backwards_when_its_target_is_the_one_known() -> None:
    plan = plan_of("match { $a: Person  $a knows $b  $b.name = $n } return { $a.name }")
    assert shape(plan.steps) == ["scan b", "walk b in a"]


def test_an_edge_whose_ends_are_its_key_is_looked_up_between_two_known_nodes() -> None:
    ends = "match { $p: Person { name: $n }  $f: Firm { code: 1 }  %s } return { $f.city }"
    assert shape(plan_of(ends % "$p rates $f").steps) == ["scan p", "scan f", "close p out f"]
    # The edges of other types have unknown ids: those of one end are followed.
    assert shape(plan_of(ends % "$p worksAt $f").steps) == ["scan p", "walk p out f"]
    # A single known end makes no pair.
    one = plan_of("match { $p: Person { name: $n }  $p rates $f } return { $f.city }")
    assert shape(one.steps) == ["scan p", "walk p out f"]


def test_a_unique_value_is_as_good_as_a_key() -> None:
    plan = plan_of("match { $a: Person  $a knows $b  $b.mail = $n } return { $a.name }")
    assert shape(plan.steps) == ["scan b", "walk b in a"]


def test_the_smaller_side_is_begun_with() -> None:
    body = 'match { $p: Person  $p worksAt $f  $f.city = "Bern" } return { $p.name }'
    assert shape(plan_of(body).steps) == ["scan f", "walk f in p"]
    assert shape(plan_of(body, Firm=10_000_000, Person=10).steps) == ["scan p", "walk p out f"]


def test_a_chain_grows_from_its_known_end() -> None:
    plan = plan_of(
        "match { $a: Person  $a knows $b  $b knows $c  $c worksAt $f  $f.code = 7 } return { $a.name }"
    )
    assert shape(plan.steps) == ["scan f", "walk f in c", "walk c in b", "walk b in a"]


def test_a_cycle_is_closed_by_a_look_and_not_walked() -> None:
    plan = plan_of(
        "match { $a: Person { name: $n }  $a knows $b  $b knows $c  $c knows $a } return { $b.name, $c.name }"
    )
    assert shape(plan.steps)[0] == "scan a"
    assert [item.split()[0] for item in shape(plan.steps)] == ["scan", "walk", "walk", "close"]


def test_a_target_that_nobody_looks_at_is_forgotten_at_once_and_counted() -> None:
    plan = plan_of("match { $a: Person  $a knows $b } return { $a.name, count($b) as n }")
    walk = next(step for step in plan.steps if isinstance(step, ExpandStep))
    assert plan.duplicates == "count"
    assert walk.expand.target not in walk.keep
    assert walk.where == ()


def test_a_target_with_a_condition_is_visited_and_then_forgotten() -> None:
    plan = plan_of("match { $a: Person { name: $n }  $a knows $b  $b.age > 3 } return { count($b) as n }")
    walk = next(step for step in plan.steps if isinstance(step, ExpandStep))
    assert len(walk.where) == 1
    assert walk.keep == frozenset()


def test_variables_are_kept_as_long_as_something_later_needs_them() -> None:
    plan = plan_of(
        "match { $a: Person { name: $n }  $a knows $b  $b knows $c  $c.age > $b.age } return { $c.name }"
    )
    keeps = [step.keep for step in plan.steps]
    assert shape(plan.steps) == ["scan a", "walk a out b", "walk b out c", "check"]
    assert keeps == [{"a"}, {"b"}, {"b", "c"}, {"c"}]


def test_an_order_keeps_every_variable_because_ids_break_ties() -> None:
    plan = plan_of("match { $a: Person { name: $n }  $a knows $b } return { $a.name } order { $a.name }")
    assert plan.steps[-1].keep == {"a", "b"}


@pytest.mark.parametrize(
    ("outputs", "duplicates"),
    [
        ("$b.name", "keep"),
        ("count($b) as n", "count"),
        ("$a.name, sum($b.age) as n, count($b) as m", "count"),
        ("count(distinct $b) as n", "drop"),
        ("min($b.age) as n, max($b.age) as m", "drop"),
        ("min($b.age) as n, avg($b.age) as m", "count"),
        ("collect($b.name) as n, count($b) as m", "keep"),
    ],
)
def test_rows_are_merged_only_where_the_result_cannot_tell(outputs: str, duplicates: str) -> None:
    assert plan_of(f"match {{ $a: Person  $a knows $b }} return {{ {outputs} }}").duplicates == duplicates


def test_distinct_rows_are_a_set() -> None:
    plan = plan_of("match { $a: Person  $a knows $b } return distinct { $b.age }")
    assert plan.duplicates == "drop"


def test_an_optional_part_is_a_barrier() -> None:
    plan = plan_of(
        "match { $a: Person  optional { $a worksAt $f }  $b: Person { name: $n }  $a knows $b } return { $f.code }"
    )
    # Begun at the key it would be cheaper; but what follows the optional part stays behind it.
    assert shape(plan.steps) == ["scan a", "maybe [walk a out f]", "walk a out b"]


def test_a_condition_on_an_optional_variable_stays_outside_when_it_is_written_outside() -> None:
    outside = plan_of(
        "match { $a: Person { name: $n }  optional { $a worksAt $f }  $f.code > 3 } return { $f.code }"
    )
    inside = plan_of(
        "match { $a: Person { name: $n }  optional { $a worksAt $f  $f.code > 3 } } return { $f.code }"
    )
    assert shape(outside.steps) == ["scan a", "maybe [walk a out f]", "check"]
    assert shape(inside.steps) == ["scan a", "maybe [walk a out f]"]


def test_a_negation_waits_for_the_variables_that_it_takes_from_outside() -> None:
    plan = plan_of(
        "match { $b: Person  not { $b worksAt $f  $f.code = 1 }  $a knows $b  $a.name = $n } return { $b.name }"
    )
    steps = shape(plan.steps)
    assert steps[:2] == ["scan a", "walk a out b"]
    assert steps[2].startswith("without [")
    without = next(step for step in plan.steps if isinstance(step, AntiJoinStep))
    assert without.outer == ("b",)


def test_a_step_that_renews_a_name_of_a_negation_stays_behind_it_and_others_do_not() -> None:
    renewed = plan_of(
        "match { $a: Person  not { $a knows $b }  $a knows $b  $b.name = $n } return { $b.name }"
    )
    both = "not { $a knows $c }  not { $a worksAt $c }"
    shared = plan_of(f"match {{ $a: Person  {both}  $a knows $b  $b.name = $n }} return {{ $b.name }}")
    assert shape(renewed.steps) == ["scan a", "without [walk a out b]", "walk a out b"]
    assert shape(shared.steps)[:2] == ["scan b", "walk b in a"]


def test_a_plan_without_one_of_the_conditions_is_no_plan() -> None:
    looks_at_nobody = ir.Filter(ir.IsNull(ir.EntityRef("nobody", "Person")))
    query = plan_of("match { $a: Person } return { $a.name }").query
    with pytest.raises(AssertionError, match="the plan leaves out"):
        plan_read(replace(query, pattern=(*query.pattern, looks_at_nobody)), TableSizes())
    for block in (ir.AntiJoin, partial(ir.OptionalMatch, introduces=())):
        with pytest.raises(AssertionError, match="the plan leaves out"):
            plan_read(replace(query, pattern=(*query.pattern, block((looks_at_nobody,)))), TableSizes())


@dataclass(frozen=True)
class CountedSizes(TableSizes):
    """Counts the questions of the planner."""

    asked: list[str] = field(default_factory=list)

    def edges(self, edge_type: str) -> int:
        self.asked.append(edge_type)
        return super().edges(edge_type)


@pytest.mark.parametrize("text", ["$v{} knows $v{}", "$v0 knows $v{1}"], ids=["chain", "star"])
def test_plan_of_many_traversals_estimates_each_a_few_times(text: str) -> None:
    count = 300
    steps = " ".join(text.format(number, number + 1) for number in range(count))
    source = Source(f"query q() {{ match {{ $v0: Person {steps} }} return {{ $v0.name }} }}", "query")
    query = check_query(parse_queries(source).queries[0], SCHEMA, source)
    assert isinstance(query, ir.ReadQuery)
    sizes = CountedSizes()
    plan = plan_read(query, sizes)
    assert len(plan.steps) == count + 1
    # Once for each end that is bound, for each start that is tried.
    assert len(sizes.asked) <= 4 * count


def test_plan_after_the_deadline_is_given_up() -> None:
    query = plan_of("match { $p: Person } return { $p.name }").query
    with time_limit(0), pytest.raises(ResourceLimit):
        plan_read(query, TableSizes())
