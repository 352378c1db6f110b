"""The commands of the container images, run without a container: apply to a bucket, serve it, check its health."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml

from tests.cli.running import ROOT, access, start_process
from tests.deploy.test_deployment_files import COMPOSE, DEPLOY, instructions
from tests.support.s3 import Bucket, running_server
from tests.support.waiting import HANG


def test_compose_services_apply_and_serve_a_cluster_in_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "examples" / "cluster", tmp_path / "cluster")
    shutil.copy(DEPLOY / "compose" / "cluster.yaml", tmp_path / "cluster" / "cluster.yaml")
    service = yaml.safe_load(COMPOSE.read_text())["services"]["server"]
    tokens = json.loads((DEPLOY / "compose" / "tokens.json").read_text())
    with running_server() as s3:
        s3.objects.make_bucket("company")
        for name in list(os.environ):
            if name.startswith(("OMNIGRAPH", "AWS")):
                monkeypatch.delenv(name)
        for name, value in access(Bucket(s3, "company")).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
        script = ["sh", str(DEPLOY / "compose" / "apply.sh"), str(tmp_path / "cluster")]
        applied = subprocess.run(script, capture_output=True, text=True, timeout=HANG, check=True)
        assert "state: revision 2, converged: true, written: true" in applied.stdout
        environment = {
            **os.environ,
            **{k: v for k, v in service["environment"].items() if k.startswith("OMNIGRAPH")},
            "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(DEPLOY / "compose" / "tokens.json"),
            "OMNIGRAPH_BIND": "127.0.0.1:0",
            "OMNIGRAPH_METRICS": "127.0.0.1:0",
            "OMNIGRAPH_WORKERS": "1",
        }
        found = dict(instructions((DEPLOY / "Dockerfile").read_text()))
        with start_process(*json.loads(found["CMD"]), environment=environment) as server:
            address = server.stdout.readline().strip().partition("=")[2]
            answer = httpx.post(
                f"http://{address}/graphs/knowledge/queries/documents",
                json={},
                headers={"Authorization": f"Bearer {tokens['act-ann']}"},
                timeout=HANG,
                verify=False,
            )
            assert answer.json()["rows"] == []
            check = json.loads(found["HEALTHCHECK"].partition(" CMD ")[2])
            assert check[0] == "python"
            program = re.sub(r"127\.0\.0\.1:\d+", address, check[-1])
            healthy = [sys.executable, *check[1:-1]]
            assert subprocess.run([*healthy, program], timeout=HANG, check=False).returncode == 0
            server.send_signal(signal.SIGTERM)
            assert server.wait(HANG) == 0
            down = subprocess.run([*healthy, program], capture_output=True, timeout=HANG, check=False)
            assert down.returncode != 0


def test_serve_takes_its_cluster_and_address_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    environment = {**os.environ, "OMNIGRAPH_CLUSTER": str(tmp_path), "OMNIGRAPH_BIND": "127.0.0.1:0"}
    with start_process("serve", environment=environment) as server:
        _, errors = server.communicate()
    assert (server.returncode, "cluster_state_missing" in errors) == (1, True)
    # An argument wins over the variable.
    with start_process("serve", str(tmp_path / "gone.yaml"), environment=environment) as server:
        _, errors = server.communicate()
    assert "gone.yaml" in errors
