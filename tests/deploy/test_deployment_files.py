"""The files below `deploy/` are valid, agree with each other, and name only what exists."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from omnigraph.server.limits import VARIABLE, ServerLimits
from omnigraph.server.run import parse_bind
from tests.cli.running import ROOT

DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
NAME = re.compile(r"OMNIGRAPH_[A-Z_]*[A-Z]")


def documents(folder: Path) -> dict[str, dict[str, Any]]:
    return {file.name: yaml.safe_load(file.read_text()) for file in sorted(folder.glob("*.yaml"))}


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their arguments, without comments and line ends."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile, flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.split(None, 1)[1].strip()) for line in text.splitlines() if line.strip()]


def find_docker_faults(dockerfile: str) -> Iterator[str]:
    """Yield what is wrong with a Dockerfile, by the rules of the usual linter."""
    found = instructions(dockerfile)
    last = [at for at, (name, _) in enumerate(found) if name == "FROM"][-1]
    final = found[last:]
    for name, value in found:
        image = value.split()[0]
        if name == "FROM" and (":" not in image or image.endswith(":latest")):
            yield f"the version of {image} is not pinned"
        if name == "ADD" or (name == "WORKDIR" and not value.startswith("/")):
            yield f"{name} {value}"
        if name == "RUN" and "pip install" in value and "--no-cache-dir" not in value:
            yield "pip keeps its cache"
        if name == "RUN" and re.search(r"\b(sudo|cd)\b", value):
            yield f"RUN {value}"
        if name in ("CMD", "ENTRYPOINT") and not value.startswith("["):
            yield f"{name} runs a shell, which does not forward signals"
    users = [value for name, value in final if name == "USER"]
    if not users or users[-1].split(":")[0] in ("0", "root"):
        yield "the container runs as root"
    elif not users[-1].split(":")[0].isdigit():
        # Kubernetes cannot see that it is not root.
        yield "the user has a name instead of a number"
    if not any(name == "HEALTHCHECK" for name, _ in final):
        yield "there is no health check"
    if len([name for name, _ in found if name == "FROM"]) < 2:
        yield "the image contains what only the build needs"


@pytest.mark.parametrize(
    ("dockerfile", "fault"),
    [
        ("FROM python\nUSER 1\nHEALTHCHECK CMD x", "the version of python is not pinned"),
        ("FROM a:1\nFROM a:1\nRUN pip install x\nUSER 1\nHEALTHCHECK x", "pip keeps its cache"),
        ("FROM a:1\nFROM a:1\nHEALTHCHECK x", "the container runs as root"),
        ("FROM a:1\nUSER 5\nFROM a:1\nHEALTHCHECK x", "the container runs as root"),
        ("FROM a:1\nFROM a:1\nUSER joe\nHEALTHCHECK x", "the user has a name instead of a number"),
        ("FROM a:1\nFROM a:1\nUSER 1", "there is no health check"),
        ("FROM a:1\nUSER 1\nHEALTHCHECK x", "the image contains what only the build needs"),
        ("FROM a:1\nFROM a:1\nUSER 1\nHEALTHCHECK x\nCMD a b", "CMD runs a shell, which does not forward signals"),
    ],
)  # fmt: skip
def test_rules_for_dockerfiles_find_planted_faults(dockerfile: str, fault: str) -> None:
    assert fault in find_docker_faults(dockerfile)


def test_dockerfile_follows_the_rules_and_copies_files_that_exist() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert list(find_docker_faults(text)) == []
    included = {
        line[1:]
        for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied: set[str] = set()
    for name, value in instructions(text):
        if name == "COPY" and not value.startswith("--from"):
            copied |= {word.removeprefix("./") for word in value.split()[:-1]}
    assert all((ROOT / name).exists() for name in copied)
    assert copied == included
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (installed,) = re.findall(r'"\.\[(.*)\]"', text)
    assert set(installed.split(",")) <= extras.keys()


def test_environment_variables_of_all_files_exist_in_the_source() -> None:
    known = {item.metadata[VARIABLE] for item in fields(ServerLimits)}
    for file in (ROOT / "src").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        known |= set(NAME.findall(text))
        for suffix in re.findall(r'f"\{PREFIX\}(S_[A-Z_]+)"', text):
            known.add(f"OMNIGRAPH_SERVER_BEARER_TOKEN{suffix}")
    used = {
        name
        for file in DEPLOY.rglob("*")
        if file.is_file()
        for name in NAME.findall(file.read_text(encoding="utf-8"))
    }
    assert len(used) > 8
    assert used <= known


# --- Kubernetes --------------------------------------------------------------------------------------------


def test_kustomization_lists_every_manifest_and_each_has_its_kind() -> None:
    found = documents(KUBERNETES)
    listed = found.pop("kustomization.yaml")["resources"]
    assert sorted(listed) == sorted(found)
    kinds = {
        name: (item["apiVersion"], item["kind"], item["metadata"]["name"]) for name, item in found.items()
    }
    assert kinds == {
        "configuration.yaml": ("v1", "ConfigMap", "omnigraph"),
        "deployment.yaml": ("apps/v1", "Deployment", "omnigraph"),
        "disruption-budget.yaml": ("policy/v1", "PodDisruptionBudget", "omnigraph"),
        "namespace.yaml": ("v1", "Namespace", "omnigraph"),
        "network-policy.yaml": ("networking.k8s.io/v1", "NetworkPolicy", "omnigraph"),
        "service-account.yaml": ("v1", "ServiceAccount", "omnigraph"),
        "service.yaml": ("v1", "Service", "omnigraph"),
    }


def test_manifests_refer_to_each_other() -> None:
    found = documents(KUBERNETES)
    deployment = found["deployment.yaml"]["spec"]
    pod = deployment["template"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels
    assert found["service.yaml"]["spec"]["selector"] == labels
    assert found["disruption-budget.yaml"]["spec"]["selector"]["matchLabels"] == labels
    assert found["network-policy.yaml"]["spec"]["podSelector"]["matchLabels"] == labels
    assert pod["serviceAccountName"] == found["service-account.yaml"]["metadata"]["name"]
    (container,) = pod["containers"]
    ports = {item["name"]: item["containerPort"] for item in container["ports"]}
    assert {item["targetPort"] for item in found["service.yaml"]["spec"]["ports"]} == ports.keys()
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == "http"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert deployment["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(ports["metrics"])
    # The ports are those of the image.
    image = dict(re.findall(r"(OMNIGRAPH_\w+)=(\S+)", (DEPLOY / "Dockerfile").read_text()))
    assert parse_bind(image["OMNIGRAPH_BIND"]) == ("0.0.0.0", ports["http"])
    assert parse_bind(image["OMNIGRAPH_METRICS"]) == ("0.0.0.0", ports["metrics"])
    mounts = {item["name"]: item["mountPath"] for item in container["volumeMounts"]}
    assert mounts.keys() == {item["name"] for item in pod["volumes"]}
    tokens = found["configuration.yaml"]["data"]["OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"]
    assert tokens.startswith(mounts["tokens"])


def test_pods_have_few_rights_and_time_to_stop() -> None:
    found = documents(KUBERNETES)
    pod = found["deployment.yaml"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"USER {pod['securityContext']['runAsUser']}:" in (DEPLOY / "Dockerfile").read_text()
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"].keys() == {"requests", "limits"}
    assert not any("secret" in name.lower() for name in found["configuration.yaml"]["data"])
    data = found["configuration.yaml"]["data"]
    assert all(isinstance(value, str) for value in data.values())
    needed = float(data["OMNIGRAPH_DRAIN_SECONDS"]) + float(data["OMNIGRAPH_STOP_SECONDS_MAX"])
    assert pod["terminationGracePeriodSeconds"] > needed


# --- Docker Compose and systemd ----------------------------------------------------------------------------


def test_compose_services_use_files_and_services_that_exist() -> None:
    found = yaml.safe_load(COMPOSE.read_text())
    services = found["services"]
    for service in services.values():
        assert service.get("depends_on", {}).keys() <= services.keys()
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            known = source in found["volumes"] if "/" not in source else (COMPOSE.parent / source).exists()
            assert known, volume
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), "the secrets of the file are public"
        if "build" in service:
            context = COMPOSE.parent / service["build"]["context"]
            assert (context / service["build"]["dockerfile"]).is_file()
        else:
            assert re.search(r":RELEASE\.\d{4}", service["image"])
    assert json.loads((COMPOSE.parent / found["secrets"]["tokens"]["file"]).read_text())
    assert services["server"]["environment"]["OMNIGRAPH_CLUSTER"] == "s3://company/production"


def test_compose_cluster_is_the_example_with_a_bucket() -> None:
    given = yaml.safe_load((DEPLOY / "compose" / "cluster.yaml").read_text())
    assert given.pop("storage") == "s3://company/production"
    assert given == yaml.safe_load((ROOT / "examples" / "cluster" / "cluster.yaml").read_text())


def test_systemd_unit_gives_the_server_time_to_stop() -> None:
    unit = (DEPLOY / "systemd" / "omnigraph.service").read_text()
    members = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and line[0] != "#")
    assert [section for section in unit.splitlines() if section.startswith("[")] == [
        "[Unit]",
        "[Service]",
        "[Install]",
    ]
    assert shlex.split(members["ExecStart"])[1:] == ["serve"]
    assert (members["User"], members["KillMode"]) == ("omnigraph", "mixed")
    environment = dict(
        line.split("=", 1)
        for line in (DEPLOY / "systemd" / "omnigraph.env").read_text().splitlines()
        if line and line[0] != "#"
    )
    assert members["EnvironmentFile"] == "/etc/omnigraph/omnigraph.env"
    needed = float(environment["OMNIGRAPH_DRAIN_SECONDS"]) + float(environment["OMNIGRAPH_STOP_SECONDS_MAX"])
    assert float(members["TimeoutStopSec"]) > needed
    assert parse_bind(environment["OMNIGRAPH_BIND"])
    assert parse_bind(environment["OMNIGRAPH_METRICS"])
