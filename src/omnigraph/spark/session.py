"""Where a Spark session comes from: the caller's, the active one, a cluster by its address, else this machine.

What is started here starts in silence. The JVM says things on its error stream before any logger can be told not
to, so that stream goes to a file that only an error quotes.
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
# As Spark's own launcher finds it.
_ASK_JAVA = 'exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version'
_INSTALL_JAVA = (
    "install one, for example with: apt-get install openjdk-17-jre-headless, or point JAVA_HOME at one"
)

_QUIET = {
    "spark.app.name": "omnigraph",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_ANY_PYTHON = "python3"
_TAIL_BYTES = 2_000
_CONNECT_PORT = 15_002
_CONNECT_SECONDS = 10

_starting = threading.Lock()


def resolve_session(session: SparkSession | None = None, master: str | None = None) -> SparkSession:
    """A session to work with, in this order: the one given, the active one, the one at `master`, one made here.

    `master` is a Spark Connect address (``sc://host:port``) or a master's (``local[2]``, ``spark://host:port``,
    ``k8s://...``, ``yarn``); without one it is ``local[*]``. A session that was started here serves every later
    call in the process and ends with it; others are left to whoever started them. A missing pyspark is
    `InvalidInput`, and so is a Java that is missing or too old.
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
    """A session for what callers say of it: a session, the address of one, or nothing."""
    return resolve_session(master=spark) if isinstance(spark, str) else resolve_session(spark)


def share_python(spark: Any) -> None:
    """Have tasks that run on this machine run on this very Python, with all that is installed for it.

    Spark would take any `python3`, which in an environment that is not activated is another one. One that was
    chosen stays, and so do those of other machines.
    """
    context = getattr(spark, "_sc", None)
    if context is not None and context.master.startswith("local") and context.pythonExec == _ANY_PYTHON:
        context.pythonExec = sys.executable


def java_release() -> int | None:
    """The feature release of the Java that Spark would run on, 17 for ``17.0.15``; None when there is none."""
    try:
        asked = subprocess.run(
            ["sh", "-c", _ASK_JAVA], capture_output=True, text=True, errors="replace", check=False
        )
    except FileNotFoundError as error:
        raise InvalidInput("Spark needs a POSIX shell, `sh`, on the PATH") from error
    found = _JAVA_VERSION.search(asked.stderr)
    return None if found is None else int(found[1])


def check_java() -> None:
    """Refuse a machine whose Java is missing or older than Spark needs, in one sentence."""
    release = java_release()
    if release is None:
        raise InvalidInput(
            f"Spark needs a Java {JAVA_RELEASE} or newer, and none was found", hint=_INSTALL_JAVA
        )
    if release < JAVA_RELEASE:
        raise InvalidInput(
            f"Spark needs a Java {JAVA_RELEASE} or newer, and the one found is {release}",
            details={"release": release},
            hint=_INSTALL_JAVA,
        )


def _active_session() -> SparkSession | None:
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    # A session is active in the thread that made it alone; in others the default one is there to be used.
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

    # What follows the host may hold a token, which belongs in no message.
    parts = urlsplit(address)
    try:
        server = (parts.hostname or "", parts.port or _CONNECT_PORT)
        # The client itself would try again for minutes before it says that nobody is there.
        socket.create_connection(server, timeout=_CONNECT_SECONDS).close()
        return SparkSession.builder.remote(address).getOrCreate()
    except (PySparkException, OSError, ValueError) as error:
        raise InvalidInput(
            f"no Spark Connect server answers at {parts.scheme}://{parts.netloc}: {_first_line(str(error))}",
            hint="write sc://host:port",
        ) from error


def _start(master: str) -> SparkSession:
    if not _MASTERS.match(master):
        raise InvalidInput(
            f"'{master}' is not the address of a Spark",
            hint="write local[2], spark://host:port, k8s://..., yarn or sc://host:port",
        )
    check_java()
    with tempfile.TemporaryFile() as noise:
        try:
            return _start_quietly(master, noise)
        # What a JVM that cannot start ends in differs by how far it came.
        except Exception as error:
            raise InvalidInput(
                f"Spark did not start with master {master}: {_first_line(str(error))}",
                details={"master": master, "output": _tail(noise)},
            ) from error


def _start_quietly(master: str, noise: IO[bytes]) -> SparkSession:
    from pyspark import SparkConf, SparkContext, java_gateway
    from pyspark.sql import SparkSession

    launch: Any = java_gateway.launch_gateway

    settings = {**_QUIET, **(_LOOPBACK if master.startswith("local") else {}), "spark.master": master}
    conf = SparkConf().setAll(list(settings.items()))
    # The JVM of a session that was stopped earlier stays and serves the next.
    jvm: Any = SparkContext._gateway  # noqa: SLF001 - there is no public way to know
    if jvm is None:
        with warnings.catch_warnings():
            # The child becomes another program at once, so nothing of Lance lives on in it.
            warnings.filterwarnings("ignore", message="lance is not fork-safe")
            jvm = launch(conf, {"stdout": noise, "stderr": noise})
    context = SparkContext(conf=conf, gateway=jvm)
    session = SparkSession(context)
    share_python(session)
    return session


def _tail(noise: IO[bytes]) -> str:
    end = noise.seek(0, 2)
    noise.seek(max(0, end - _TAIL_BYTES))
    return noise.read().decode("utf-8", errors="replace")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
