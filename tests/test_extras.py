"""A missing optional library is reported with the extra that installs it."""

from __future__ import annotations

import sys

import pytest

import omnigraph as og
from omnigraph.engine.engine_choice import wants_spark
from omnigraph.errors import InvalidInput
from omnigraph.extras import is_installed, requires
from omnigraph.spark.session import resolve_session
from tests.cli.running import run

SCHEMA = "node Person { name: String @key }"
ALL = "query all() { match { $p: Person } return { $p.name } }"


def without(monkeypatch: pytest.MonkeyPatch, *libraries: str) -> None:
    """Make imports of these libraries fail as if they were not installed."""
    for library in libraries:
        monkeypatch.setitem(sys.modules, library, None)


def missing(feature: str, library: str, extra: str) -> str:
    return f"{feature} needs {library}; install it with: pip install 'omnigraph[{extra}]'"


def test_requires_missing_library_raises_error_with_extra_and_library() -> None:
    with pytest.raises(InvalidInput) as caught, requires("server", "this"):
        raise ModuleNotFoundError("No module named 'starlette'", name="starlette.types")
    assert str(caught.value) == missing("this", "starlette", "server")
    assert caught.value.details == {"extra": "server", "library": "starlette"}


@pytest.mark.parametrize("name", ["omnigraph.server.ap", "pandas", None])
def test_requires_passes_on_failed_import_of_another_module(name: str | None) -> None:
    with pytest.raises(ModuleNotFoundError), requires("server", "this"):
        raise ModuleNotFoundError("No such module", name=name)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_result_to_frame_without_library_names_extra(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    result = og.init(f"memory://extras-{library}", schema=SCHEMA).query(ALL)
    without(monkeypatch, library)
    with pytest.raises(InvalidInput) as caught:
        getattr(result, f"to_{library}")()
    assert str(caught.value) == missing(f"to_{library}()", library, library)


def test_spark_session_without_pyspark_names_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pyspark")
    with pytest.raises(InvalidInput) as caught:
        resolve_session()
    assert str(caught.value) == missing("the Spark engine", "pyspark", "spark")


def test_auto_engine_without_pyspark_stays_local(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_installed("spark")
    assert wants_spark("auto", in_memory=False, large=True)
    without(monkeypatch, "pyspark")
    assert not is_installed("spark")
    assert not wants_spark("auto", in_memory=False, large=True)
    assert wants_spark("spark", in_memory=False, large=True)


def test_serve_without_fastapi_prints_one_line_and_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("omnigraph.server")]:
        monkeypatch.delitem(sys.modules, module)
    without(monkeypatch, "fastapi", "starlette", "uvicorn", "python_multipart")
    outcome = run("serve", "graphs.yaml")
    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr == f"error: {missing('the HTTP server', 'fastapi', 'server')}\n"
