"""BootMarker: evidence that a previous run ended without loss of records (decision 0061)."""

from pathlib import Path

import pytest

from odradek.broker.quorum.boot_marker import BootMarker
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.files import names


def marker(path: Path, boot: str = "a boot") -> BootMarker:
    return BootMarker(OsDisk(), str(path), boot)


def test_broker_epoch_is_known_after_a_restart_in_the_same_boot(tmp_path: Path) -> None:
    assert marker(tmp_path).previous_broker_epoch() == -1
    marker(tmp_path).record(17)
    assert marker(tmp_path).previous_broker_epoch() == 17


def test_broker_epoch_is_unknown_after_another_boot(tmp_path: Path) -> None:
    marker(tmp_path).record(17)
    assert marker(tmp_path, "another boot").previous_broker_epoch() == -1


def test_broker_epoch_is_unknown_after_removal_of_the_marker(tmp_path: Path) -> None:
    marker(tmp_path).record(17)
    marker(tmp_path).remove()
    assert marker(tmp_path).previous_broker_epoch() == -1


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"bootId": "a boot"}', b'{"bootId": "a boot", "brokerEpoch": "x"}', b"\xff"]
)
def test_broker_epoch_is_unknown_if_the_marker_is_malformed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / names.BOOT_MARKER).write_bytes(content)
    assert marker(tmp_path).previous_broker_epoch() == -1


def test_record_has_no_effect_after_remove(tmp_path: Path) -> None:
    removed = marker(tmp_path)
    removed.record(17)
    removed.remove()
    removed.record(18)
    assert marker(tmp_path).previous_broker_epoch() == -1
