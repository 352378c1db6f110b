"""Generate readers, books and ratings as graph records, the same ones every time: `make_data.py FILE`."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

READERS = 3_000
BOOKS = 800
FOLLOWS = 15_000
RATINGS = 24_000

FIRST = (
    "Ada",
    "Ben",
    "Cleo",
    "Dov",
    "Eva",
    "Finn",
    "Gita",
    "Hugo",
    "Iris",
    "Jun",
    "Kaya",
    "Leo",
    "Mina",
    "Noa",
)
LAST = ("Abel", "Brandt", "Costa", "Diaz", "Endo", "Fuchs", "Gold", "Horn", "Ito", "Jansen", "Kern", "Lund")
TOWNS = ("Bern", "Graz", "Lyon", "Oslo", "Porto", "Turin")
# For each genre: the subjects of its books, and the mean of their vectors (funny, dark, fast, true).
GENRES = {
    "crime": (("inspector", "forger", "alibi", "smuggler"), (0.3, 0.9, 0.8, 0.2)),
    "history": (("empire", "treaty", "harbour", "queen"), (0.2, 0.5, 0.3, 0.9)),
    "nature": (("lighthouse", "glacier", "orchard", "heron"), (0.4, 0.2, 0.2, 0.9)),
    "novel": (("sister", "letter", "summer", "pianist"), (0.6, 0.5, 0.4, 0.3)),
    "science": (("comet", "microbe", "theorem", "telescope"), (0.4, 0.2, 0.5, 1.0)),
}
MOODS = ("Forgotten", "Last", "Patient", "Quiet", "Reluctant", "Second", "Silver", "Unlikely")
PLACES = (
    "at the border",
    "beneath the ice",
    "in the attic",
    "of the north",
    "on the night train",
    "under glass",
)


def records(seed: int = 7) -> Iterator[dict[str, Any]]:
    """Yield the nodes, then the edges between them. The popularity of readers and books is skewed."""
    chance = random.Random(seed)
    readers = [f"r{number:04}" for number in range(READERS)]
    for handle in readers:
        name = f"{chance.choice(FIRST)} {chance.choice(LAST)}"
        yield node("Reader", handle=handle, name=name, town=chance.choice(TOWNS), joined=day(chance, 2015))
    books = [f"b{number:03}" for number in range(BOOKS)]
    for slug in books:
        yield node("Book", slug=slug, **book(chance))
    popular = sorted(readers, key=lambda _: chance.random())
    follows = {(skewed(chance, readers), skewed(chance, popular)) for _ in range(FOLLOWS)}
    for source, target in sorted(follows):
        if source != target:
            yield edge("Follows", source, target, since=day(chance, 2018))
    ratings = {(chance.choice(readers), skewed(chance, books)) for _ in range(RATINGS)}
    for source, target in sorted(ratings):
        yield edge(
            "Rated", source, target, stars=chance.choice((1, 2, 3, 3, 4, 4, 4, 5, 5)), on=day(chance, 2020)
        )


def book(chance: random.Random) -> dict[str, Any]:
    """Return a book: a title, a blurb with two subjects of its genre, and a vector near the mean of its genre."""
    genre = chance.choice(list(GENRES))
    things, tends = GENRES[genre]
    hero, other = chance.sample(things, 2)
    place = chance.choice(PLACES)
    return {
        "title": f"The {chance.choice(MOODS)} {hero.title()} {place}",
        "blurb": f"How {with_article(hero)} met {with_article(other)}, and what they found {place}.",
        "genre": genre,
        "year": chance.randint(1950, 2025),
        "flavour": [round(min(1.0, max(0.0, chance.gauss(mean, 0.15))), 2) for mean in tends],
    }


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article.

    >>> with_article("alibi")
    'an alibi'
    """
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def skewed(chance: random.Random, items: list[str]) -> str:
    """Return a random item; the first items much more often."""
    return items[int(len(items) * chance.random() ** 3)]


def day(chance: random.Random, first_year: int) -> str:
    return (date(first_year, 1, 1) + timedelta(days=chance.randrange(5 * 365))).isoformat()


def node(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data}


def edge(kind: str, source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": kind, "from": source, "to": target, "data": data}


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        count = sum(file.write(json.dumps(record) + "\n") > 0 for record in records())
    sys.stdout.write(f"wrote {count:,} records to {path}\n")
