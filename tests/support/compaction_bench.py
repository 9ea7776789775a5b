"""The job that compacts, over partitions with real logs in a folder, and a clock that the test turns."""

from pathlib import Path
from typing import Any

from odradek.broker.config.topics import TopicSettings
from odradek.broker.partition.compaction_job import CompactionJob
from odradek.protocol.batch import build_batch
from odradek.runtime.tasks import Tasks
from odradek.storage.config import LogConfig
from odradek.storage.data_directory.log_manager import LogManager
from odradek.storage.files.checkpoint import decode_offsets
from odradek.storage.log.log import PartitionLog
from odradek.storage.producers.entry import Origin
from tests.support.data_rig import Rig
from tests.support.faulty_disk import FaultyDisk

COMPACTED = LogConfig(segment_bytes=400, cleanup_policy=("compact",))


class Bench:
    def __init__(self, folder: Path, config: LogConfig = COMPACTED, *assignments: str) -> None:
        self.folder = folder
        self.rig = Rig(folder, *assignments, config=config)
        self.disk = FaultyDisk()
        self.logs = LogManager(self.disk, str(folder), LogConfig())
        self.rig.logs = self.logs  # type: ignore[assignment]  # the whole manager in place of the part
        self.rig.partitions._logs = self.logs
        self.rig.topic("t", 2)
        self.unexpected: list[tuple[str, BaseException]] = []
        tasks = Tasks(lambda name, exception: self.unexpected.append((name, exception)))
        self.compaction = CompactionJob(
            TopicSettings(self.rig.config), self.rig.clock, self.rig.partitions, self.logs, tasks.spawn
        )

    def put(self, index: int = 0, count: int = 20, keys: int = 3, **fields: Any) -> None:
        now_ms = self.rig.clock.now_ms
        for number in range(count):
            data = build_batch([(b"k%d" % (number % keys), b"v%d" % number, now_ms, ())], **fields)
            self.rig.partition("t", index).append(data, origin=Origin.CLIENT, now_ms=now_ms)

    def log(self, index: int = 0) -> PartitionLog:
        return self.rig.partition("t", index).log

    def offsets(self, name: str) -> dict[tuple[str, int], int]:
        return decode_offsets((self.folder / name).read_bytes())
