"""The files in deploy/ pass the linters of their formats, agree with each other, and use only settings, paths, ports,
metrics and signals that the code has.

The tests do not run these files, because that needs a container runtime and systemd.
"""

from __future__ import annotations

import copy
import fnmatch
import functools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deltalog.server import config
from deltalog.server.config import Config
from tests.support.cli import run

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
UNIT = DEPLOY / "systemd" / "deltalog.service"
RULES = DEPLOY / "prometheus" / "deltalog.rules.yml"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
YAML = sorted(DEPLOY.rglob("*.y*ml"))
# The oldest and the newest Kubernetes version that the manifests are for.
KUBERNETES = ("1.29", "1.37")


def tool(name: str) -> str:
    """A program from one of the packages that the tests install."""
    return str(Path(sys.executable).with_name(name))


@functools.cache
def documents(file: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(file.read_text(encoding="utf-8")) if each]


def of_kind(*kinds: str, files: list[Path] = MANIFESTS) -> list[dict[str, Any]]:
    return [each for file in files for each in documents(file) if each["kind"] in kinds]


def workloads() -> list[dict[str, Any]]:
    return of_kind("Deployment", "StatefulSet")


WORKLOADS = pytest.mark.parametrize("workload", workloads(), ids=lambda each: each["kind"])


# ------------------------------------------------------------------------------------------------------ linters


def test_hadolint_finds_nothing_in_the_container_file() -> None:
    done = subprocess.run([tool("hadolint"), "--format", "json", str(DOCKERFILE)], capture_output=True, timeout=60)
    assert json.loads(done.stdout) == []


def test_yamllint_finds_nothing() -> None:
    command = [tool("yamllint"), "--strict", "-c", str(DEPLOY / ".yamllint.yaml"), *map(str, YAML)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_accepts_the_manifests(version: str) -> None:
    checked = 0
    for file in MANIFESTS:
        for document in documents(file):
            if document["kind"] != "ServiceMonitor":  # the validator has no schema for it
                kubernetes_validate.validate(document, version, strict=True)
                checked += 1
    assert checked >= 8


def test_kubernetes_refuses_what_is_wrong() -> None:
    wrong = copy.deepcopy(of_kind("Deployment")[0])
    wrong["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES[1], strict=True)


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / UNIT.name  # the programs that the unit starts are not installed where the tests run
    unit.write_text(re.sub(r"/opt/deltalog/bin/deltalog\b", "/bin/true", UNIT.read_text()))
    done = subprocess.run([program, "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    safe = subprocess.run(
        [program, "security", "--offline=true", "--threshold=15", str(unit)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert safe.returncode == 0, safe.stdout


# ------------------------------------------------------------------------------------------------ container file


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.M).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines()) if word]


def all_of(name: str) -> list[str]:
    # The command of HEALTHCHECK is on a line of its own.
    return [rest for word, rest in instructions() if word == name]


def test_the_image_has_stages_of_one_pinned_base_and_runs_as_a_numbered_user() -> None:
    bases = [each.split()[0] for each in all_of("FROM")]
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.\d+-slim-\w+", bases[0])
    (user,) = all_of("USER")
    assert all(int(number) >= 10_000 for number in user.split(":"))
    for workload in workloads():
        context = workload["spec"]["template"]["spec"]["securityContext"]
        assert f"{context['runAsUser']}:{context['runAsGroup']}" == user


def test_the_server_gets_signals_itself() -> None:
    assert json.loads(all_of("ENTRYPOINT")[0]) == ["deltalog"]
    assert json.loads(all_of("CMD")[0]) == ["serve", "--config", "/etc/deltalog/server.toml"]
    assert "CMD [" in all_of("HEALTHCHECK")[0]
    assert all_of("STOPSIGNAL") == ["SIGTERM"]


def test_the_image_has_what_it_copies_and_no_secret() -> None:
    patterns = [line for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] not in "#"]
    assert patterns[0] == "*"
    kept = {line[1:] for line in patterns if line.startswith("!")}
    copied = {
        source
        for each in all_of("COPY")
        if "--from=" not in each
        for source in [word for word in each.split() if not word.startswith("--")][:-1]
    }
    assert copied == kept
    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert not any(fnmatch.fnmatch(source, "*secret*") for source in copied)
    named = " ".join([*all_of("ENV"), *all_of("ARG")])
    assert not re.search(r"token|secret|password|_key", named, re.I)


def test_the_image_installs_extras_that_exist() -> None:
    (install,) = [each for each in all_of("RUN") if "pip install" in each]
    named = re.search(r"\.\[([\w,]+)\]", install)
    assert named
    extras = re.search(r"\[project\.optional-dependencies\]\n(.*?)\n\[", (ROOT / "pyproject.toml").read_text(), re.S)
    assert extras
    assert set(named[1].split(",")) <= set(re.findall(r"^([\w-]+) = \[", extras[1], re.M))


# ---------------------------------------------------------------------------------------------- configurations


def configurations() -> Iterator[tuple[str, str]]:
    yield "server.toml", (DEPLOY / "server.toml").read_text()
    for file in MANIFESTS:
        for each in of_kind("ConfigMap", files=[file]):
            yield file.name, each["data"]["server.toml"]


CONFIGURATIONS = pytest.mark.parametrize(
    ("name", "text"), [pytest.param(*each, id=each[0]) for each in configurations()]
)


def configuration(name: str, text: str, place: Path) -> Config:
    """The configuration as the server reads it."""
    file = place / "server.toml"
    file.write_text(text)
    return config.read(config.parse(file), name)


@CONFIGURATIONS
def test_the_server_accepts_the_configuration(name: str, text: str, tmp_path: Path) -> None:
    """Checks keys and types only, because the files that the configuration names do not exist here."""
    found = configuration(name, text, tmp_path)
    assert found.tls.certificate_file
    assert found.catalog.url
    assert found.audit.file
    assert found.metrics.enabled


@CONFIGURATIONS
def test_the_drain_fits_the_time_before_the_kill(name: str, text: str, tmp_path: Path) -> None:
    process = configuration(name, text, tmp_path).process
    assert process.drain_seconds is not None
    if name == "server.toml":
        (limit,) = unit()["TimeoutStopSec"]
    else:
        (workload,) = of_kind("Deployment", "StatefulSet", files=[DEPLOY / "kubernetes" / name])
        limit = workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert process.drain_seconds + process.end_seconds + 5 <= int(limit)


@CONFIGURATIONS
def test_the_files_of_a_configuration_are_where_they_are_mounted(name: str, text: str, tmp_path: Path) -> None:
    found = configuration(name, text, tmp_path)
    named = [*config.files_of(found).values(), *re.findall(r'url = "(/[^"]+)"', text)]
    if name == "server.toml":
        credentials = f"/run/credentials/{UNIT.name}/"
        loaded = {each.partition(":")[0] for each in unit()["LoadCredential"]}
        places = ["/etc/deltalog/tls/", f"/var/lib/{unit()['StateDirectory'][0]}/", credentials]
        assert {each.removeprefix(credentials) for each in named if each.startswith(credentials)} == loaded
    else:
        (workload,) = of_kind("Deployment", "StatefulSet", files=[DEPLOY / "kubernetes" / name])
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        places = [f"{each['mountPath']}/" for each in container["volumeMounts"]]
    assert named
    assert [each for each in named if not each.startswith(tuple(places))] == []


@CONFIGURATIONS
def test_the_ports_of_a_configuration_are_those_of_its_container(name: str, text: str, tmp_path: Path) -> None:
    found = configuration(name, text, tmp_path)
    assert {str(found.listen.port), str(found.metrics.port)} == set(all_of("EXPOSE")[0].split())


@WORKLOADS
def test_probes_and_ports_are_the_server_s(workload: dict[str, Any]) -> None:
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert set(all_of("EXPOSE")[0].split()) == {str(port) for port in ports.values()}
    paths = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: each["path"] for name, each in paths.items()} == {
        "startup": "/health/live", "liveness": "/health/live", "readiness": "/health/ready",
    }  # fmt: skip
    assert all(each["port"] in ports and each["scheme"] == "HTTPS" for each in paths.values())
    for service in of_kind("Service"):
        assert all(each["targetPort"] in ports for each in service["spec"]["ports"])
    for policy in of_kind("NetworkPolicy"):
        assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} == set(ports)
    for monitor in of_kind("ServiceMonitor"):
        names = {each["name"] for service in of_kind("Service") for each in service["spec"]["ports"]}
        assert {each["port"] for each in monitor["spec"]["endpoints"]} <= names


@WORKLOADS
def test_pods_are_restricted_and_find_their_volumes(workload: dict[str, Any]) -> None:
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] in [each["metadata"]["name"] for each in of_kind("ServiceAccount")]
    claims = [each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", [])]
    volumes = {each["name"] for each in pod["volumes"]} | set(claims)
    assert {each["name"] for each in container["volumeMounts"]} == volumes
    labels = workload["spec"]["template"]["metadata"]["labels"]
    for selector in [
        workload["spec"]["selector"]["matchLabels"],
        *(each["spec"]["selector"] for each in of_kind("Service")),
        *(each["spec"]["podSelector"]["matchLabels"] for each in of_kind("NetworkPolicy")),
        *(each["spec"]["selector"]["matchLabels"] for each in of_kind("PodDisruptionBudget")),
    ]:
        assert selector.items() <= labels.items()


def test_sqlite_has_one_server_and_a_shared_catalog_several() -> None:
    (single,) = of_kind("StatefulSet")
    assert single["spec"]["replicas"] == 1
    (claim,) = single["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    (several,) = of_kind("Deployment")
    (budget,) = of_kind("PodDisruptionBudget")
    assert 1 <= budget["spec"]["minAvailable"] < several["spec"]["replicas"]


def test_no_manifest_contains_a_secret() -> None:
    assert of_kind("Secret") == []
    for file in [*MANIFESTS, UNIT, DEPLOY / "server.toml"]:
        assert not re.search(r"(password|token|secret)\w* *[:=] *\"?\w{12,}", file.read_text(), re.I), file


# -------------------------------------------------------------------------------------------------------- systemd


def unit() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_the_unit_starts_what_there_is() -> None:
    found = unit()
    assert found["ExecStart"] == ["/opt/deltalog/bin/deltalog serve --config /etc/deltalog/server.toml"]
    assert found["ExecStartPre"] == [f"{found['ExecStart'][0]} --check-config"]
    assert found["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    shown = run("serve", "--help").out
    assert "--config" in shown
    assert "--check-config" in shown
    assert "SIGHUP" in (ROOT / "deltalog" / "server" / "serve.py").read_text()


def test_the_unit_lets_the_server_write_only_where_its_configuration_says(tmp_path: Path) -> None:
    found = unit()
    assert found["ProtectSystem"] == ["strict"]
    assert "ReadWritePaths" not in found
    writable = (f"/var/lib/{found['StateDirectory'][0]}/", f"/var/log/{found['LogsDirectory'][0]}/")
    settings = configuration("server.toml", (DEPLOY / "server.toml").read_text(), tmp_path)
    named = [settings.catalog.url, settings.audit.file, settings.audit.access_file]
    assert all(each.startswith(writable) for each in named), named
    logs = (DEPLOY / "logrotate" / "deltalog").read_text()
    globs = re.findall(r"(/var/log/\S+)", logs)
    assert all(any(fnmatch.fnmatch(each, glob) for glob in globs) for each in named if each.startswith("/var/log"))
    # The server reopens its files by itself, even if they were renamed and no new file was created.
    assert {"nocreate", "delaycompress"} <= set(logs.split())
