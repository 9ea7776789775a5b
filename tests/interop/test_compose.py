"""docker-compose.yml without Docker: command line, environment and health check of each service as processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from odradek.local.ports import ReservedPorts
from odradek.protocol.sasl.cluster_secret import SECRET_BYTES_MIN

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0
INTERNAL_PORT, CLIENT_PORT = "9091", "9092"
"""Ports in the network of the containers: for brokers and for clients."""
HOST, CONTAINERS = "the host", "containers"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]


[SECRET] = COMPOSE["secrets"]
SECRET_IN_CONTAINER = f"/run/secrets/{SECRET}"
DOCUMENTS = ("docker-compose.yml", "README.md", "docs/operations.md")
COMMAND = re.compile(r"mkdir -p -m 0700 secrets && .*(?=\n)")


def make_secret(directory: Path) -> Path:
    """Run the documented command in `directory`, and return the path of the secret."""
    match = COMMAND.search((ROOT / DOCUMENTS[0]).read_text(encoding="utf-8"))
    assert match is not None
    subprocess.run(["sh", "-c", match[0]], cwd=directory, check=True, timeout=TIMEOUT_S)
    return directory / str(COMPOSE["secrets"][SECRET]["file"])


class ThisMachine:
    """Replacements on this machine: free ports, directories for volumes, and addresses for host names of containers."""

    def __init__(self, directory: Path, ports: list[int]) -> None:
        published = [service["ports"][0].partition(":")[0] for service in SERVICES.values()]
        count = len(SERVICES)
        self._inside = {
            INTERNAL_PORT: dict(zip(SERVICES, ports[:count], strict=True)),
            CLIENT_PORT: dict(zip(SERVICES, ports[count : 2 * count], strict=True)),
        }
        self._external = dict(zip(published, ports[2 * count :], strict=True))
        self._directory = directory
        self.secret = make_secret(directory)

    def rewritten(self, text: str, service: str) -> str:
        for port, of_services in self._inside.items():
            for name, free in of_services.items():
                text = text.replace(f"{name}:{port}", f"localhost:{free}")
        for published, free in self._external.items():
            text = text.replace(f":{published}", f":{free}")
        for port, of_services in self._inside.items():
            text = re.sub(rf":{port}\b", f":{of_services[service]}", text)
        text = text.replace(SECRET_IN_CONTAINER, str(self.secret))
        return text.replace("/var/lib/odradek", str(self._directory / service))

    def environment(self, service: str) -> dict[str, str]:
        environment = {name: self.rewritten(value, service) for name, value in SERVICES[service]["environment"].items()}
        return {**os.environ, **environment, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def bootstrap(self, seen_from: str) -> str:
        ports = self._external if seen_from == HOST else self._inside[CLIENT_PORT]
        return ",".join(f"localhost:{port}" for port in ports.values())


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThisMachine]:
    with ReservedPorts("127.0.0.1", 3 * len(SERVICES)) as reserved, ExitStack() as ends:
        machine = ThisMachine(tmp_path_factory.mktemp("volumes"), reserved.ports)
        processes = []
        for service, described in SERVICES.items():
            process = subprocess.Popen(
                described["command"], env=machine.environment(service), stdout=subprocess.PIPE, text=True
            )
            ends.callback(process.communicate, timeout=TIMEOUT_S)
            ends.callback(process.terminate)
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready localhost:")
        yield machine


@pytest.mark.parametrize("seen_from", [HOST, CONTAINERS])
def test_transaction_commits_on_three_replicas_of_each_partition(machine: ThisMachine, seen_from: str) -> None:
    bootstrap = machine.bootstrap(seen_from)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "compose"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("greetings", b"hello")
    producer.commit_transaction(TIMEOUT_S)
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S)
    endpoints = sorted(f"{broker.host}:{broker.port}" for broker in metadata.brokers.values())
    assert endpoints == sorted(bootstrap.split(",")), (
        "metadata must have the endpoints of the listener that received the request"
    )
    for topic in ("greetings", "__transaction_state"):
        for partition in metadata.topics[topic].partitions.values():
            assert len(partition.replicas) == len(SERVICES)


@pytest.mark.parametrize("service", list(SERVICES))
def test_health_check_of_each_service_passes(machine: ThisMachine, service: str) -> None:
    [word, *check] = [machine.rewritten(word, service) for word in SERVICES[service]["healthcheck"]["test"]]
    assert word == "CMD"
    healthy = subprocess.run(
        check,
        env=machine.environment(service),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert healthy.returncode == 0, healthy.stderr


def test_all_files_that_the_image_copies_exist() -> None:
    copied = [line.split()[1:-1] for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("COPY")]
    names = [name for names in copied for name in names]
    assert [name for name in names if not (ROOT / name).exists()] == []
    assert {"broker", "cluster", "coordinator", "odradek", "protocol", "runtime", "storage"} <= set(names)


def test_each_volume_and_port_is_declared_and_used_once() -> None:
    volumes = [volume.partition(":")[0] for service in SERVICES.values() for volume in service["volumes"]]
    assert volumes == list(COMPOSE["volumes"])
    ports = [port for service in SERVICES.values() for port in service["ports"]]
    assert len(ports) == len(set(ports)) == len(SERVICES)
    for service in SERVICES.values():
        [(outside, inside)] = [port.split(":") for port in service["ports"]]
        assert f"EXTERNAL://:{inside}" in service["environment"]["ODRADEK_LISTENERS"]
        assert f"EXTERNAL://localhost:{outside}" in service["environment"]["ODRADEK_ADVERTISED_LISTENERS"]


def test_voters_are_the_services() -> None:
    for number, (name, service) in enumerate(SERVICES.items(), 1):
        environment = service["environment"]
        assert environment["ODRADEK_NODE_ID"] == str(number)
        assert f"{number}@{name}:{INTERNAL_PORT}" in environment["ODRADEK_CONTROLLER_QUORUM_VOTERS"].split(",")
        advertised = environment["ODRADEK_ADVERTISED_LISTENERS"].split(",")
        assert f"INTERNAL://{name}:{INTERNAL_PORT}" in advertised
        assert f"CLIENT://{name}:{CLIENT_PORT}" in advertised
        assert environment["ODRADEK_INTER_BROKER_LISTENER_NAME"] == "INTERNAL"


def test_each_service_mounts_the_secret_and_names_its_file() -> None:
    for service in SERVICES.values():
        assert service["secrets"] == [SECRET]
        assert service["environment"]["ODRADEK_CLUSTER_SECRET_FILE"] == SECRET_IN_CONTAINER
        assert "ODRADEK_INTER_BROKER_AUTHENTICATION" not in service["environment"]


def test_documented_command_makes_a_secret_that_only_containers_and_its_owner_can_read(tmp_path: Path) -> None:
    secret = make_secret(tmp_path)
    assert len(secret.read_bytes().strip()) >= SECRET_BYTES_MIN
    assert secret.stat().st_mode & 0o777 == 0o444
    assert secret.parent.stat().st_mode & 0o777 == 0o700
    commands = [COMMAND.findall((ROOT / name).read_text(encoding="utf-8")) for name in DOCUMENTS]
    assert commands == [commands[0]] * len(DOCUMENTS)


def test_secret_is_in_no_commit_and_in_no_image() -> None:
    path = COMPOSE["secrets"][SECRET]["file"]
    command = ["git", "check-ignore", str(path)]
    ignored = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=TIMEOUT_S, check=False)
    if ignored.returncode == 128:
        pytest.skip("the source tree is no git repository")
    assert ignored.returncode == 0
    copied = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith(("COPY", "ADD"))]
    assert not [line for line in copied if "secret" in line or line.split()[1] == "."]


def test_docker_compose_accepts_the_compose_file() -> None:
    try:
        version = subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=TIMEOUT_S, check=False)
    except FileNotFoundError:
        pytest.skip("docker is not installed")
    if version.returncode != 0:
        pytest.skip("docker compose is not installed")
    command = ["docker", "compose", "-f", str(ROOT / "docker-compose.yml"), "config", "--quiet"]
    judged = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (judged.returncode, judged.stderr) == (0, "")
