"""A Spark of its own on loopback: a master, two workers and, if asked for, a Connect server, all real processes.

The workers have addresses of their own, since Spark never runs a second attempt of a task on the host of the first.
Every process leads a session, by which its executors and their Pythons are found and ended with it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from tests.support.spark_settings import JVM_OPTIONS, python_path, write_settings
from tests.support.waiting import wait_until

HOSTS = ("127.0.0.1", "127.0.0.2")

_HOME = Path(pyspark.__file__).parent
_SPARK_CLASS = str(_HOME / "bin" / "spark-class")
# The test may be ended without a chance to end anybody else.
_WITH_ME = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": JVM_OPTIONS,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.extraJavaOptions": JVM_OPTIONS,
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    # On a busy machine a process may be silent for minutes. A process that ended is noticed by its connections.
    "spark.executor.heartbeatInterval": "60s",
    "spark.network.timeout": "600s",
    "spark.python.authenticate.socketTimeout": "600s",
    "spark.worker.timeout": "600",
    # What takes longer than the others is tried a second time.
    "spark.speculation": "true",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.quantile": "0.5",
}


def members(session: int) -> list[int]:
    """The processes that run in a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_session) == session and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


@dataclass(frozen=True)
class Process:
    """A process that leads a session, and where it says what it does."""

    popen: subprocess.Popen[str]
    log: Path

    @property
    def is_alive(self) -> bool:
        return self.popen.poll() is None

    def said(self, pattern: str) -> str:
        """Waits until it has said something that matches; the first group of it."""

        def look() -> str | None:
            assert self.is_alive, f"it ended with {self.popen.returncode}: {self.tail()}"
            found = re.search(pattern, self.log.read_text(errors="replace"))
            return None if found is None else found[1]

        return wait_until(look, f"{pattern} in {self.log.name}")

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """End it and all of its session, at once and without a chance to say anything."""

        def gone() -> bool:
            alive = members(self.popen.pid)
            for pid in alive:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            return not alive

        wait_until(gone, "processes that were killed")
        self.popen.wait()
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream is not None:
                stream.close()


@dataclass
class Cluster:
    """A master and its workers, one for each of `HOSTS`."""

    folder: Path
    # The Python processes start as those of users do, or faster.
    is_quick: bool = False
    processes: list[Process] = field(default_factory=list)
    workers: dict[str, Process] = field(default_factory=dict)
    url: str = ""

    def prepare(self) -> None:
        """Write the settings of its processes; enough for those that need neither master nor workers."""
        write_settings(self.folder / "conf", _SETTINGS)

    def start(self) -> None:
        """Start the master and the workers."""
        self.prepare()
        master = self._spark("master.Master", "--host", HOSTS[0], "--port", "0", "--webui-port", "0")
        self.url = master.said(r"Starting Spark master at (spark://\S+)")
        self.mend()

    def mend(self) -> None:
        """Have every host a worker, also those whose worker was killed."""
        missing = [host for host in HOSTS if host not in self.workers or not self.workers[host].is_alive]
        for host in missing:
            options = ["--host", host, "--port", "0", "--webui-port", "0", "-c", "1", "-m", "1g"]
            work = str(self.folder / f"work-{host}")
            self.workers[host] = self._spark("worker.Worker", *options, "-d", work, self.url, host=host)
        for host in missing:
            self.workers[host].said(r"(Successfully registered) with master")

    @contextmanager
    def connect_server(self) -> Iterator[str]:
        """A Spark Connect server whose tasks run on its own machine; its address."""
        server = self.launch(
            [
                *(_SPARK_CLASS, "org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"),
                *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
                *("--conf", "spark.connect.grpc.binding.port=0"),
                *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
            ]
        )
        try:
            port = server.said(r"Connect server started at: .*:(\d+)")
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.kill()

    def environment(self, host: str = HOSTS[0]) -> dict[str, str]:
        """What a process of this Spark finds around it: nothing of any other Spark."""
        others = {
            name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))
        }
        quick = {"PYTHONPATH": python_path()} if self.is_quick else {}
        return (
            others
            | quick
            | {
                "SPARK_HOME": str(_HOME),
                "SPARK_CONF_DIR": str(self.folder / "conf"),
                "SPARK_DAEMON_JAVA_OPTS": JVM_OPTIONS,
                "SPARK_DAEMON_MEMORY": "512m",
                "SPARK_LOCAL_DIRS": str(self.folder / f"local-{host}"),
                "SPARK_LOCAL_IP": host,
                "PYSPARK_PYTHON": sys.executable,
            }
        )

    def launch(
        self,
        command: Sequence[str],
        *,
        host: str = HOSTS[0],
        stdio: int = subprocess.DEVNULL,
        cwd: Path | None = None,
    ) -> Process:
        """A process that ends with the cluster at the latest. What it says is in a file, or comes through pipes."""
        log = self.folder / f"{len(self.processes)}.log"
        with log.open("w") as file:
            popen = subprocess.Popen(
                [*_WITH_ME, *command],
                cwd=cwd or self.folder,
                env=self.environment(host),
                stdin=stdio,
                stdout=file if stdio == subprocess.DEVNULL else stdio,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        made = Process(popen, log)
        self.processes.append(made)
        return made

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.kill()

    def _spark(self, name: str, *options: str, host: str = HOSTS[0]) -> Process:
        return self.launch([_SPARK_CLASS, f"org.apache.spark.deploy.{name}", *options], host=host)


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster, every process of which is gone afterwards."""
    cluster = Cluster(folder, is_quick=True)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
