"""Cursors and page tokens: short, fit for a URL, and told from everything that they are not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.changes.cursors import MAX_CURSOR_BYTES, EntityKey, Token, TokenScope
from omnigraph.errors import InvalidInput
from omnigraph.graph.repository import Repository
from tests.support.places import fresh_memory
from tests.support.repositories import make_graph, put

REJECTED = r"^change cursor rejected: "


@pytest.fixture
def graph() -> Repository:
    return make_graph(fresh_memory())


def api(graph: Repository) -> og.Graph:
    return og.open(graph.location.uri)


class TestTokens:
    SCOPE = TokenScope("g", "b", "f")

    def test_a_cursor_is_short_and_fit_for_a_url(self, graph: Repository) -> None:
        cursor = api(graph).feed(types=["Person", "City", "Knows"], kinds=["node"]).cursor
        assert cursor is not None
        assert len(cursor) < 256 < MAX_CURSOR_BYTES
        assert cursor.replace("-", "").replace("_", "").isalnum()

    @given(st.text(), st.text(), st.sampled_from(["cursor", "feed page", "commit page"]))
    def test_every_token_reads_back(self, commit: str, id_: str, use: Any) -> None:
        commit, id_ = (text.encode(errors="replace").decode() for text in (commit, id_))
        token = Token(use, self.SCOPE, commit, "cut", EntityKey("edge", "12", id_))
        assert Token.decode(token.encode(), use, self.SCOPE) == token

    @given(st.text(max_size=300))
    def test_any_text_is_told_from_a_token(self, text: str) -> None:
        with pytest.raises(InvalidInput, match=REJECTED):
            Token.decode(text, "cursor", self.SCOPE)

    @given(st.integers(0, 400), st.sampled_from("Aa0-_=.é \n"), st.sampled_from(["replace", "insert", "cut"]))
    def test_a_token_that_was_touched_is_rejected(self, place: int, letter: str, how: str) -> None:
        good = Token("cursor", self.SCOPE, "01M7A2RB7M7QCRQ2SCXTK0S625").encode()
        place %= len(good)
        bad = {
            "replace": good[:place] + letter + good[place + 1 :],
            "insert": good[:place] + letter + good[place:],
            "cut": good[:place],
        }[how]
        if bad != good:
            with pytest.raises(InvalidInput, match=REJECTED):
                Token.decode(bad, "cursor", self.SCOPE)

    def test_every_other_last_letter_is_told(self) -> None:
        for length in range(3):
            good = Token("cursor", self.SCOPE, "c" * length).encode()
            for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_":
                if letter != good[-1]:
                    with pytest.raises(InvalidInput, match=REJECTED):
                        Token.decode(good[:-1] + letter, "cursor", self.SCOPE)

    def test_a_cursor_is_for_its_graph_branch_and_filter_alone(self, graph: Repository) -> None:
        graph.create_branch("dev")
        cursor = api(graph).feed(ops=["insert"]).cursor
        api(graph).feed(cursor=cursor, ops=["insert"])
        for wrong in ({}, {"ops": ["delete"]}, {"ops": ["insert"], "branch": "dev"}):
            with pytest.raises(InvalidInput, match=REJECTED):
                api(graph).feed(cursor=cursor, **wrong)
        with pytest.raises(InvalidInput, match=REJECTED):
            api(make_graph(fresh_memory())).feed(cursor=cursor, ops=["insert"])

    def test_a_page_token_is_no_cursor_and_the_other_way_round(self, graph: Repository) -> None:
        put(graph, {"a": "x", "b": "x"})
        page = api(graph).feed(start="beginning", limit=1)
        cursor = api(graph).feed().cursor
        with pytest.raises(InvalidInput, match=REJECTED):
            api(graph).feed(cursor=page.next_page_token)
        with pytest.raises(InvalidInput, match=REJECTED):
            api(graph).feed(page_token=cursor)
        with pytest.raises(InvalidInput, match=REJECTED):
            api(graph).feed(cursor="x" * (MAX_CURSOR_BYTES + 1))

    def test_a_branch_of_the_same_name_is_another_branch(self, graph: Repository) -> None:
        graph.create_branch("dev")
        put(graph, {"a": "x", "b": "x"}, "dev")
        page = api(graph).feed(branch="dev", start="beginning", limit=1)
        cursor = api(graph).feed(branch="dev").cursor
        graph.delete_branch("dev")
        graph.create_branch("dev")
        with pytest.raises(InvalidInput, match=r"rejected: .*an earlier branch of the same name"):
            api(graph).feed(branch="dev", cursor=cursor)
        with pytest.raises(InvalidInput, match=REJECTED):
            api(graph).feed(branch="dev", page_token=page.next_page_token)

    def test_a_filter_on_a_type_that_is_unknown_is_refused_at_the_start(self, graph: Repository) -> None:
        with pytest.raises(InvalidInput, match="unknown type 'Persn'"):
            api(graph).feed(types=["Persn"])
