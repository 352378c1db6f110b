"""The generated async modules agree with the interfaces they are generated from."""

from __future__ import annotations

import pytest

from scripts.async_api import FILE_WRITES, PACKAGE, READS, WRITES, render_modules


@pytest.mark.parametrize(("name", "text"), render_modules().items(), ids=render_modules())
def test_generated_module_rendered_again_is_unchanged(name: str, text: str) -> None:
    assert (PACKAGE / name).read_text(encoding="utf-8") == text, "run make generate"


def test_every_method_has_one_pool() -> None:
    assert not READS & WRITES
    assert not FILE_WRITES & (READS | WRITES)
    rendered = "".join(render_modules().values())
    unused = [key for key in READS | FILE_WRITES | WRITES if f"See `{key}`." not in rendered]
    assert unused == []
