"""All fuzz targets by name."""

from __future__ import annotations

from tests.fuzz.targets.certificates import SUBJECTS
from tests.fuzz.targets.configuration import PROPERTIES_FILE
from tests.fuzz.targets.coordinator_logs import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.fuzz.targets.files import SMALL_FILES
from tests.fuzz.targets.frames import REQUEST_FRAMES, RESPONSE_FRAMES
from tests.fuzz.targets.handshake import SCRAM
from tests.fuzz.targets.membership import DATAGRAMS
from tests.fuzz.targets.messages import MESSAGES
from tests.fuzz.targets.metadata_log import METADATA_BATCHES, METADATA_RECORDS
from tests.fuzz.targets.records import PRODUCED, STORED
from tests.fuzz.targets.recovery import RECOVERY

TARGETS = {
    target.name: target
    for target in (
        REQUEST_FRAMES, RESPONSE_FRAMES, MESSAGES, PRODUCED, STORED, SCRAM, SMALL_FILES, RECOVERY, TRANSACTION_STATE,
        CONSUMER_OFFSETS, METADATA_RECORDS, METADATA_BATCHES, DATAGRAMS, PROPERTIES_FILE,
        SUBJECTS,
    )
}  # fmt: skip
