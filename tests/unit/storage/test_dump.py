"""The decoder of data directory files, and its command."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from odradek.broker.config.brokers import KNOWN
from odradek.cluster.metadata.records import ConfigRecord, MetadataRecord, UserScramCredentialRecord, encode_record
from odradek.protocol.batch import build_batch
from odradek.storage.dump import HIDDEN, SECRET_PROPERTIES, dump_file, main
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW_MS, append, batch, open_log

if TYPE_CHECKING:
    from pathlib import Path


def test_damaged_file_ends_with_an_error_entry(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(disk, str(tmp_path))
    append(log, batch(1))
    append(log, batch(1))
    log.close(clean=True)
    path = log.segments.first.path(".log")
    disk.replace_file_now(path, disk.read_file(path)[:-3] + b"???")
    entries = list(dump_file(disk, path, records=True))
    assert [entry["valid"] for entry in entries] == [True, False]
    disk.replace_file_now(path, disk.read_file(path)[:-3])
    assert "error" in list(dump_file(disk, path))[-1]
    for suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
        broken = f"{tmp_path}/{0:020d}{suffix}"
        disk.replace_file_now(broken, b"?" * 7)
        assert "error" in next(dump_file(disk, broken))
    with pytest.raises(ValueError, match="unknown kind of file"):
        dump_file(disk, f"{tmp_path}/notes.txt")
    disk.close()


def test_secrets_of_the_metadata_log_are_hidden(tmp_path: Path) -> None:
    prefix = "listener.name.client."
    records: list[MetadataRecord] = [
        ConfigRecord(4, "1", f"{prefix}ssl.keystore.password", "s3cret"),
        ConfigRecord(4, "1", f"{prefix}ssl.keystore.key", "s3cret"),
        ConfigRecord(4, "1", f"{prefix}ssl.keystore.password", None),
        ConfigRecord(4, "1", f"{prefix}ssl.keystore.location", "node.p12"),
        UserScramCredentialRecord("alice", 1, b"s3cret", b"s3cret", b"s3cret", 4_096),
    ]
    path = tmp_path / "__cluster_metadata-0" / f"{0:020d}.log"
    path.parent.mkdir()
    path.write_bytes(build_batch([(None, encode_record(record), NOW_MS, ()) for record in records]))
    disk = FaultyDisk()
    [entry] = dump_file(disk, str(path), records=True)
    values = [record["value"] for record in entry["records"]]
    assert [value.get("value") for value in values] == [HIDDEN, HIDDEN, None, "node.p12", None]
    assert values[-1]["name"] == "alice"
    assert "s3cret" not in json.dumps(values)
    disk.close()


def test_each_secret_property_of_running_brokers_is_hidden() -> None:
    assert set(SECRET_PROPERTIES) == {name for name, prop in KNOWN.items() if prop.is_secret}


def test_command_prints_the_entries_of_each_file_as_json(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(disk, str(tmp_path))
    append(log, batch(2))
    log.roll(NOW_MS)  # an active segment of this size has no index files
    log.close(clean=True)
    disk.close()
    files = [log.segments.first.path(".log"), log.segments.first.path(".index")]
    command = [sys.executable, "-m", "odradek.storage.dump", *files, "--records"]
    printed = subprocess.run(command, capture_output=True, check=True).stdout
    segment, index = json.loads(printed)
    assert [segment["file"], index["file"]] == files
    assert [record["offset"] for record in segment["entries"][0]["records"]] == [0, 1]
    assert index["entries"] == []


def test_command_fails_for_a_file_of_unknown_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notes = tmp_path / "notes.txt"
    notes.touch()
    assert main([str(notes)]) == 1
    assert "unknown kind of file" in capsys.readouterr().err
    assert main([str(tmp_path / f"{0:020d}.log")]) == 1
    assert capsys.readouterr().err == f"{tmp_path}/{0:020d}.log cannot be read: No such file or directory\n"
