from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek import LocalCluster
from odradek.local.processes import BrokerCommand
from odradek.testing.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("descriptor", "options"), [(None, []), (7, ["--test-hooks", "7"])])
def test_option_is_there_only_with_a_descriptor(tmp_path: Path, descriptor: int | None, options: list[str]) -> None:
    command = BrokerCommand(1, tmp_path / "config", tmp_path / "log", test_hooks=descriptor)
    arguments = command.argv()
    assert arguments[arguments.index("--log-file") + 2 :] == options


def test_only_the_cluster_for_tests_passes_a_descriptor(tmp_path: Path) -> None:
    assert LocalCluster(directory=tmp_path)._test_hooks(1) is None
    cluster = KafkaCluster(directory=tmp_path)
    assert cluster._test_hooks(1) >= 0
    cluster.close()
