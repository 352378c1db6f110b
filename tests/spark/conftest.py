"""The one Spark session of these tests: starting another costs more than all of them together."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

import omnigraph.spark
from omnigraph.spark.session import resolve_session
from tests.support.spark_settings import JVM_OPTIONS, python_path, write_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Output:
    """What this process and its children wrote to both of its streams for a while."""

    text: str = field(default="")


@contextmanager
def recorded() -> Iterator[Output]:
    """Record what goes to the file descriptors, where the output of child processes ends up too."""
    output = Output()
    kept = [os.dup(stream) for stream in (1, 2)]
    with tempfile.TemporaryFile() as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
        try:
            yield output
        finally:
            for stream, before in zip((1, 2), kept, strict=True):
                os.dup2(before, stream)
                os.close(before)
            file.seek(0)
            output.text = file.read().decode()


@dataclass(frozen=True)
class Started:
    """A session and all that was printed while it started and ran its first job."""

    session: SparkSession
    output: str


@pytest.fixture(scope="package", autouse=True)
def _quick_start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Settings for every Spark that starts during these tests, also in other processes."""
    folder = tmp_path_factory.mktemp("spark") / "conf"
    write_settings(folder, {"spark.driver.extraJavaOptions": JVM_OPTIONS, "spark.driver.memory": "1g"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(folder))
        patch.setenv("PYTHONPATH", python_path())
        yield


@pytest.fixture(scope="package")
def started(_quick_start: None) -> Iterator[Started]:
    with recorded() as output:
        session = resolve_session(master="local[2]")
        session.range(10).collect()
    yield Started(session, output.text)
    session.stop()


@pytest.fixture(scope="package")
def spark(started: Started) -> SparkSession:
    """A session that knows graphs."""
    omnigraph.spark.register(started.session)
    # Two cores: more parts than that only cost time.
    started.session.conf.set("spark.sql.shuffle.partitions", "2")
    return started.session
