"""docker-compose.yml without an engine: the very command line, environment and health check of each service, as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kafka_broker import free_port

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))


def on_this_machine(text: str, ports: dict[str, str], data: Path) -> str:
    """What differs here: free ports, a folder for the volume, and no container's name to look up."""
    for port, free in ports.items():
        text = text.replace(f":{port}", f":{free}")
    return text.replace("/var/lib/odradek", str(data)).replace("://odradek-1", "://localhost")


@pytest.mark.parametrize("service", list(COMPOSE["services"]))
def test_the_command_of_a_service_serves_and_its_health_check_passes(service: str, tmp_path: Path) -> None:
    described = COMPOSE["services"][service]
    ports = {port: str(free_port()) for port in ("19092", "9092")}
    given = {name: on_this_machine(value, ports, tmp_path) for name, value in described["environment"].items()}
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, **given, "PATH": f"{scripts}:{os.environ['PATH']}"}
    broker = subprocess.Popen(described["command"], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        assert broker.stdout.readline() == f"ready localhost:{ports['9092']},localhost:{ports['19092']}\n"
        [word, *check] = [on_this_machine(word, {}, tmp_path) for word in described["healthcheck"]["test"]]
        assert word == "CMD"
        check = [argument.replace("19092", ports["19092"]) for argument in check]
        healthy = subprocess.run(check, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert (healthy.returncode, healthy.stdout.strip()) == (0, "[]"), healthy.stderr
    finally:
        broker.terminate()
        broker.communicate(timeout=TIMEOUT_S)
    assert broker.returncode == 0


def test_everything_that_the_image_copies_is_there() -> None:
    copied = [line.split()[1:-1] for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("COPY")]
    names = [name for names in copied for name in names]
    assert [name for name in names if not (ROOT / name).exists()] == []
    assert {"broker", "cluster", "coordinator", "odradek", "protocol", "runtime", "storage"} <= set(names)


def test_every_volume_and_port_is_declared() -> None:
    for service in COMPOSE["services"].values():
        assert [volume.partition(":")[0] for volume in service["volumes"]] == list(COMPOSE["volumes"])
        published = [port.partition(":")[2] for port in service["ports"]]
        assert all(f":{port}" in service["environment"]["ODRADEK_LISTENERS"] for port in published)
