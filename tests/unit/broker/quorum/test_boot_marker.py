"""What a node leaves behind says whether anything can have been lost since."""

from pathlib import Path

import pytest

from odradek.broker.quorum.boot_marker import FILE_NAME, BootMarker
from odradek.storage.disk.os_disk import OsDisk


def marker(path: Path, boot: str = "a boot") -> BootMarker:
    return BootMarker(OsDisk(), str(path), boot)


def test_a_process_that_was_killed_has_lost_nothing(tmp_path: Path) -> None:
    assert marker(tmp_path).previous_broker_epoch() == -1
    marker(tmp_path).record(17)
    assert marker(tmp_path).previous_broker_epoch() == 17


def test_another_boot_may_have_lost_what_was_not_flushed(tmp_path: Path) -> None:
    marker(tmp_path).record(17)
    assert marker(tmp_path, "another boot").previous_broker_epoch() == -1


def test_a_disk_that_has_refused_vouches_for_nothing(tmp_path: Path) -> None:
    marker(tmp_path).record(17)
    marker(tmp_path).remove()
    assert marker(tmp_path).previous_broker_epoch() == -1


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"bootId": "a boot"}', b'{"bootId": "a boot", "brokerEpoch": "x"}', b"\xff"]
)
def test_what_cannot_be_read_vouches_for_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    assert marker(tmp_path).previous_broker_epoch() == -1


def test_after_a_refusal_another_registration_does_not_vouch_again(tmp_path: Path) -> None:
    left = marker(tmp_path)
    left.record(17)
    left.remove()
    left.record(18)
    assert marker(tmp_path).previous_broker_epoch() == -1
