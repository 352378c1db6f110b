"""Sessions come from where they should, start in silence, and a machine that cannot run one says so."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omnigraph.errors import InvalidInput
from omnigraph.spark import session as sessions
from omnigraph.spark.session import check_java, java_release, resolve_session
from tests.support.waiting import HANG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Started

# Starting Spark on a busy machine takes a minute.
NOTHING_STARTED = """
import sys
import omnigraph.spark.session, omnigraph.spark.datasource.datasource, omnigraph.spark
print(*sorted({"pyspark", "py4j", "lance"} & set(sys.modules)))
"""


def fake_java(folder: Path, banner: str) -> str:
    """A home of a Java that only knows its version."""
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{banner}' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("banner", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ("command not found", None),
    ],
)
def test_java_release_is_parsed_from_the_version_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, banner: str, release: int | None
) -> None:
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path, banner))
    assert java_release() == release


def test_missing_java_raises_error_with_install_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidInput, match="no Java was found") as refused:
        check_java()
    assert "\n" not in refused.value.message
    assert "openjdk-17-jre-headless" in str(refused.value.hint)


def test_java_older_than_required_raises_error_with_its_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15'))
    with pytest.raises(InvalidInput, match="17 or newer, got Java 11"):
        check_java()


def test_session_start_on_old_java_is_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15'))
    with pytest.raises(InvalidInput, match="17 or newer"):
        sessions._start("local[1]")


@pytest.mark.parametrize("address", ["localhost", "local[]", "spark://", "http://host", "yarn-client"])
def test_session_with_invalid_master_url_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="is not a Spark master URL"):
        sessions._start(address)


def test_unreachable_connect_server_raises_error_without_the_token() -> None:
    with pytest.raises(InvalidInput, match=r"Connect at sc://127\.0\.0\.1:1:") as refused:
        sessions._connect("sc://127.0.0.1:1/;token=hush")
    assert "hush" not in f"{refused.value} {refused.value.details}"


def test_import_of_the_pipeline_imports_neither_spark_nor_lance() -> None:
    run = subprocess.run(
        [sys.executable, "-c", NOTHING_STARTED], capture_output=True, text=True, timeout=HANG, check=False
    )
    assert (run.stdout, run.stderr) == ("\n", "")


@pytest.mark.spark
def test_session_start_and_job_print_nothing(started: Started) -> None:
    assert started.output == ""


@pytest.mark.spark
def test_local_session_binds_to_loopback_and_uses_arrow(spark: SparkSession) -> None:
    settings = spark.sparkContext.getConf()
    assert settings.get("spark.driver.host") == settings.get("spark.driver.bindAddress") == "127.0.0.1"
    assert settings.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert spark.sparkContext.master == "local[2]"


@pytest.mark.spark
def test_resolve_session_with_active_session_ignores_the_master(spark: SparkSession) -> None:
    assert resolve_session() is spark
    assert resolve_session(master="spark://elsewhere:7077") is spark


@pytest.mark.spark
def test_resolve_session_with_given_session_ignores_the_active_one(spark: SparkSession) -> None:
    other = spark.newSession()
    assert resolve_session(other) is other


@pytest.mark.spark
def test_resolve_session_in_another_thread_returns_the_same_session(spark: SparkSession) -> None:
    found: list[SparkSession] = []
    thread = threading.Thread(target=lambda: found.append(resolve_session()))
    thread.start()
    thread.join()
    assert found[0].sparkContext is spark.sparkContext


@pytest.mark.spark
def test_spark_workers_run_the_python_of_this_process(spark: SparkSession) -> None:
    ran = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert ran == [sys.executable]
