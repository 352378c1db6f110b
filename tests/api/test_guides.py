"""The pages about the API do what they say: their Python runs, their commands print what is shown.

The blocks of a page run in order in a copy of the examples. An expression whose comment is a Python literal must
have that value; any other comment is prose.
"""

from __future__ import annotations

import ast
import re
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.console import SHOWN_ADDRESS, replay
from tests.cli.running import serving

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/tutorial.md",
    "docs/guide/python.md",
    "docs/guide/loading.md",
    "docs/guide/queries.md",
    "docs/guide/search.md",
    "docs/guide/merging.md",
    "docs/guide/policy.md",
    "docs/guide/embeddings.md",
)

BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _in_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")


def run_page(text: str, name: str) -> int:
    """Run every block of a page; how many comments were compared with values."""
    space: dict[str, Any] = {"__name__": "page"}
    compared = 0
    with ExitStack() as servers:
        address = None
        for code in BLOCK.findall(text):
            if SHOWN_ADDRESS in code:
                # It serves what the blocks before have made.
                address = address or servers.enter_context(serving(".", "--unauthenticated"))
                code = code.replace(SHOWN_ADDRESS, address)
            compared += run_block(code, name, space)
    return compared


def run_block(code: str, name: str, space: dict[str, Any]) -> int:
    compared = 0
    for statement in ast.parse(code).body:
        if not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), name, "exec"), space)
            continue
        value = eval(compile(ast.Expression(statement.value), name, "eval"), space)
        try:
            said = ast.literal_eval(comment_after(code, statement))
        except (SyntaxError, ValueError):
            continue
        assert value == said, ast.unparse(statement)
        compared += 1
    return compared


def comment_after(code: str, statement: ast.stmt) -> str:
    """The comment that stands behind a statement, on its last line."""
    assert statement.end_lineno is not None
    line = code.splitlines()[statement.end_lineno - 1].encode()[statement.end_col_offset :].decode()
    return line.strip().removeprefix("#").strip()


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_does_what_its_comments_say(page: str) -> None:
    assert run_page((ROOT / page).read_text(encoding="utf-8"), page) >= 3


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_print_what_it_shows(page: str) -> None:
    shown, real = replay((ROOT / page).read_text(encoding="utf-8"))
    assert real == shown


@pytest.mark.parametrize(
    "page", ["README.md", "docs/tutorial.md", "docs/guide/loading.md", "docs/guide/queries.md"]
)
def test_pages_show_commands(page: str) -> None:
    assert "\n$ omnigraph " in (ROOT / page).read_text(encoding="utf-8")


def test_a_planted_wrong_comment_is_found() -> None:
    assert run_page("```python\nn = 2\nn + 1  # 3\n```\n", "page") == 1
    with pytest.raises(AssertionError, match=r"n \+ 1"):
        run_page("```python\nn = 2\nn + 1  # 4\n```\n", "page")
