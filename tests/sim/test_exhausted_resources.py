"""Runs whose disks find no descriptor or no memory now and then: no finding, and no partition goes offline."""

from collections import Counter
from dataclasses import replace
from errno import EMFILE, ENOMEM
from random import Random
from typing import Any, Final

import pytest

import odradek.broker.partition.partition
import odradek.broker.partition.registry
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.protocol.schema import Buffer
from odradek.simulation.environment.disk import Detached, DiskFault, SimDisk, SimFile
from tests.sim.campaign import explain
from tests.sim.cluster.node_config import ROOT
from tests.sim.options.run_options import generate_options
from tests.sim.run import run_seed

pytestmark = pytest.mark.sim

CHECKS_REFUSED: Final = 0.5
"""Share of the checks of resources that fail."""
WRITES_REFUSED: Final = 0.02
"""Share of the writes to logs and transaction indexes that find no memory."""


@pytest.mark.parametrize(("seed", "brokers"), [(1, 1), (2, 3)])
def test_exhausted_resources_lose_nothing(seed: int, brokers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)
    injected: Counter[str] = Counter()
    offline: list[Any] = []
    check, write = SimDisk.check_resources, SimFile.write

    def scarce_check(self: SimDisk) -> None:
        has_started = self.exists(f"{ROOT}/{CLUSTER_METADATA}-0")  # the first start creates the metadata log
        if has_started and rng.random() < CHECKS_REFUSED:
            self.faults.append(DiskFault("resources", "", EMFILE))
            injected["resources"] += 1
        check(self)

    def scarce_write(self: SimFile, offset: int, *buffers: Buffer) -> None:
        path = self._path
        is_log = path.endswith((".log", ".txnindex")) and CLUSTER_METADATA not in path
        if is_log and rng.random() < WRITES_REFUSED:
            self._disk.faults.append(DiskFault("write", path, ENOMEM))
            injected["write"] += 1
        write(self, offset, *buffers)

    def note_offline(topic: str, index: int, error: OSError) -> None:
        if not isinstance(error, Detached):  # the node has crashed
            offline.append((topic, index, error))

    monkeypatch.setattr(SimDisk, "check_resources", scarce_check)
    monkeypatch.setattr(SimFile, "write", scarce_write)
    for module in (odradek.broker.partition.partition, odradek.broker.partition.registry):
        monkeypatch.setattr(module, "log_offline", note_offline)
    options = generate_options(seed, brokers=brokers)
    faults = [fault for fault in options.faults if not fault.kind.startswith("disk")]
    result = run_seed(seed, options=replace(options, faults=faults))
    assert result.passed, explain(result)
    assert offline == []
    assert min(injected["resources"], injected["write"]) > 0
