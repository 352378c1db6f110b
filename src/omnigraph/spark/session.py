"""Find or start a Spark session: the caller's, the active one, a cluster by its URL, or a local one.

Sessions started here print nothing. The JVM writes to its error stream before any logger can be configured, so
that stream is redirected to a file, which is quoted only in an error.
"""

from __future__ import annotations

import atexit
import re
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from omnigraph.errors import InvalidInput
from omnigraph.extras import requires

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
JAVA_RELEASE: Final = 17

_MASTERS = re.compile(r"^(local(\[.+\])?|local-cluster\[.+\]|spark://.+|k8s://.+|yarn)$")
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
# The same lookup as in Spark's own launcher.
_JAVA_COMMAND = 'exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version'
_INSTALL_JAVA = "install Java, for example with: apt-get install openjdk-17-jre-headless, or set JAVA_HOME"

_QUIET = {
    "spark.app.name": "omnigraph",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_DEFAULT_PYTHON = "python3"
_QUOTED_BYTES = 2_000
_CONNECT_PORT = 15_002
_CONNECT_SECONDS = 10

_starting = threading.Lock()


def resolve_session(session: SparkSession | None = None, master: str | None = None) -> SparkSession:
    """Return a session: the given one, the active one, one at `master`, or a new local one, in this order.

    `master` is a Spark Connect URL (``sc://host:port``) or a master URL (``local[2]``, ``spark://host:port``,
    ``k8s://...``, ``yarn``); the default is ``local[*]``. A session that was started here is reused by later
    calls in the process and stopped at exit; other sessions are never stopped. Raises `InvalidInput` if pyspark
    is missing, or if Java is missing or too old.
    """
    if session is not None:
        share_python(session)
        return session
    with _starting:
        with requires("spark", "the Spark engine"):
            active = _active_session()
        if active is not None:
            share_python(active)
            return active
        address = LOCAL if master is None else master.strip()
        started = _connect(address) if address.startswith("sc://") else _start(address)
        atexit.register(started.stop)
        return started


def session_for(spark: SparkSession | str | None) -> SparkSession:
    """Return a session for a session, the URL of one, or None."""
    return resolve_session(master=spark) if isinstance(spark, str) else resolve_session(spark)


def share_python(spark: Any) -> None:
    """Make tasks on this machine use the Python interpreter of this process.

    Spark would use any `python3`, which is a different one if the virtual environment is not activated. An
    interpreter that was configured, and interpreters of other machines, are not changed.
    """
    context = getattr(spark, "_sc", None)
    if context is not None and context.master.startswith("local") and context.pythonExec == _DEFAULT_PYTHON:
        context.pythonExec = sys.executable


def java_release() -> int | None:
    """Return the feature release of the Java that Spark would use, such as 17 for ``17.0.15``; None if there is
    none.
    """
    try:
        result = subprocess.run(
            ["sh", "-c", _JAVA_COMMAND], capture_output=True, text=True, errors="replace", check=False
        )
    except FileNotFoundError as error:
        raise InvalidInput("Spark needs the POSIX shell `sh` on the PATH") from error
    found = _JAVA_VERSION.search(result.stderr)
    return None if found is None else int(found[1])


def check_java() -> None:
    """Raise `InvalidInput` if Java is missing or older than Spark requires."""
    release = java_release()
    if release is None:
        raise InvalidInput(f"Spark needs Java {JAVA_RELEASE} or newer; no Java was found", hint=_INSTALL_JAVA)
    if release < JAVA_RELEASE:
        raise InvalidInput(
            f"Spark needs Java {JAVA_RELEASE} or newer, got Java {release}",
            details={"release": release},
            hint=_INSTALL_JAVA,
        )


def _active_session() -> SparkSession | None:
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    # A session is active only in the thread that created it; other threads use the default session.
    classic = SparkContext._active_spark_context  # noqa: SLF001 - there is no public way to look without making one
    if classic is not None:
        return SparkSession.builder.getOrCreate()
    connect: Any = sys.modules.get("pyspark.sql.connect.session")
    if connect is None:
        return None
    try:
        found: SparkSession = connect.SparkSession.active()
    except PySparkRuntimeError:
        return None
    return found


def _connect(address: str) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    # The URL may contain a token after the host, which must not appear in a message.
    parts = urlsplit(address)
    try:
        server = (parts.hostname or "", parts.port or _CONNECT_PORT)
        # The client itself would retry for minutes before it reports that the server is unreachable.
        socket.create_connection(server, timeout=_CONNECT_SECONDS).close()
        return SparkSession.builder.remote(address).getOrCreate()
    except (PySparkException, OSError, ValueError) as error:
        raise InvalidInput(
            f"cannot connect to Spark Connect at {parts.scheme}://{parts.netloc}: {_first_line(str(error))}",
            hint="use sc://host:port",
        ) from error


def _start(master: str) -> SparkSession:
    if not _MASTERS.match(master):
        raise InvalidInput(
            f"'{master}' is not a Spark master URL",
            hint="use local[2], spark://host:port, k8s://..., yarn or sc://host:port",
        )
    check_java()
    with tempfile.TemporaryFile() as output:
        try:
            return _start_quietly(master, output)
        # The exception of a JVM that fails to start depends on how far it got.
        except Exception as error:
            raise InvalidInput(
                f"Spark did not start with master {master}: {_first_line(str(error))}",
                details={"master": master, "output": _last_output(output)},
            ) from error


def _start_quietly(master: str, output: IO[bytes]) -> SparkSession:
    from pyspark import SparkConf, SparkContext, java_gateway
    from pyspark.sql import SparkSession

    launch: Any = java_gateway.launch_gateway

    settings = {**_QUIET, **(_LOOPBACK if master.startswith("local") else {}), "spark.master": master}
    conf = SparkConf().setAll(list(settings.items()))
    # The JVM of a stopped session keeps running and serves the next session.
    jvm: Any = SparkContext._gateway  # noqa: SLF001 - there is no public way to know
    if jvm is None:
        with warnings.catch_warnings():
            # The child process executes another program immediately, so no state of Lance survives in it.
            warnings.filterwarnings("ignore", message="lance is not fork-safe")
            jvm = launch(conf, {"stdout": output, "stderr": output})
    context = SparkContext(conf=conf, gateway=jvm)
    session = SparkSession(context)
    share_python(session)
    return session


def _last_output(output: IO[bytes]) -> str:
    end = output.seek(0, 2)
    output.seek(max(0, end - _QUOTED_BYTES))
    return output.read().decode("utf-8", errors="replace")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
