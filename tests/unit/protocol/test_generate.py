from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.generate import HERE, main, render_all, stale_files, write_all
from odradek.protocol.generation.naming import module_name, snake
from odradek.protocol.generation.reading import COMMENT_LINE, SCHEMA_PATH, parse_schema, read_schemas
from odradek.protocol.generation.rendering import render_module

JARS = Path(__file__).resolve().parents[3] / "build" / "jars" / "kafka"
TEXT_LENGTH_MIN = 25  # shorter ones may stand in a name by chance


@pytest.fixture(scope="module")
def wanted() -> dict[str, str]:
    return render_all(read_schemas(JARS))


def test_committed_files_are_current(wanted: dict[str, str]) -> None:
    assert stale_files(wanted, HERE) == []


def test_stale_missing_and_superfluous_files_are_found_and_repaired(wanted: dict[str, str], tmp_path: Path) -> None:
    assert stale_files(wanted, tmp_path) == sorted(wanted)
    write_all(wanted, tmp_path)
    (tmp_path / "messages" / "produce.py").write_text("old")
    (tmp_path / "records" / "end_txn_marker.py").unlink()
    (tmp_path / "records" / "of_the_past.py").write_text("")
    assert stale_files(wanted, tmp_path) == [
        "messages/produce.py",
        "records/end_txn_marker.py",
        "records/of_the_past.py",
    ]
    write_all(wanted, tmp_path)
    assert stale_files(wanted, tmp_path) == []


def test_check_lists_what_is_stale_and_exits_1(
    wanted: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("odradek.protocol.generate.HERE", tmp_path)
    assert main(["--jars", str(JARS)]) == 0
    assert main(["--check", "--jars", str(JARS)]) == 0
    (tmp_path / "messages" / "fetch.py").write_text("old")
    assert main(["--check", "--jars", str(JARS)]) == 1
    assert capsys.readouterr().out == "stale: protocol/messages/fetch.py\n"


def test_without_jars_the_reason_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--jars", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_every_schema_of_every_jar_is_generated(wanted: dict[str, str]) -> None:
    text = "\n".join(wanted.values())
    names = [json_schema["name"] for json_schema in raw_schemas()]
    assert len(names) == 280
    for name in names:
        assert f"\nclass {name}(Message):" in text


def test_no_descriptive_text_is_carried_over(wanted: dict[str, str]) -> None:
    text = "\n".join(wanted.values())
    abouts = {about for schema in raw_schemas() for about in descriptions(schema) if len(about) >= TEXT_LENGTH_MIN}
    assert len(abouts) > 500
    assert [about for about in abouts if about in text] == []


def raw_schemas() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted(
        set(JARS.glob("kafka-*.jar")) - set(JARS.glob("kafka-streams-*.jar"))
    ):  # its schemas are its own
        with zipfile.ZipFile(path) as jar:
            entries = [entry for entry in jar.namelist() if SCHEMA_PATH.match(entry)]
            found += [json.loads(COMMENT_LINE.sub("", jar.read(entry).decode())) for entry in entries]
    return found


def descriptions(node: object) -> list[str]:
    if isinstance(node, list):
        return [about for item in node for about in descriptions(item)]
    if isinstance(node, dict):
        own = [node["about"]] if "about" in node else []
        return own + [about for item in node.values() for about in descriptions(item)]
    return []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LogStartOffset", "log_start_offset"),
        ("timeoutMs", "timeout_ms"),
        ("KRaftVersionFeature", "kraft_version_feature"),
        ("V3AndBelowTopics", "v3_and_below_topics"),
        ("LastKnownELR", "last_known_elr"),
        ("From", "from_"),
    ],
)
def test_names(name: str, expected: str) -> None:
    assert snake(name) == expected


def test_pairs_share_a_module() -> None:
    assert module_name("ProduceRequest") == module_name("ProduceResponse") == "produce"
    assert module_name("TransactionLogKey") == module_name("TransactionLogValue") == "transaction_log"
    assert module_name("RequestHeader") == "request_header"


SCHEMA = """
// a comment with "quotes" in it
{ "name": "%s", "type": "%s", "apiKey": 1, "validVersions": "0-2", "flexibleVersions": "2+",
  "fields": [
    // one more
    { "name": "Items", "type": "[]Item", "versions": "0+", "nullableVersions": "1+", "about": "None of this is kept.",
      "fields": [ { "name": "Mask", "type": "int32", "versions": "0+", "default": "0x7f" } ] },
    { "name": "Epoch", "type": "int64", "taggedVersions": "2+", "tag": 0, "default": -1, "ignorable": true },
    { "name": "Single", "type": "Item", "versions": "1+", "nullableVersions": "1+", "default": "null" }
  ] }
"""


def test_one_module_of_two_schemas() -> None:
    halves = [
        parse_schema(SCHEMA % (f"Sample{half.capitalize()}", half), cluster_metadata=False)
        for half in ("request", "response")
    ]
    text = render_module(halves)
    assert "class RequestItem(Struct):" in text  # a name of both halves gets the half as prefix
    assert "class ResponseItem(Struct):" in text
    assert "items []RequestItem 0+ n1+\nepoch int64 2+ t0@2+ i\nsingle RequestItem 1+ n1+" in text
    assert "    mask: int = 127\n" in text
    assert "    epoch: int = -1\n" in text
    assert "    items: list[RequestItem] | None = field(default_factory=list)\n" in text
    assert "    single: RequestItem | None = None\n" in text
    assert "MAX_VERSION: ClassVar[int] = 2" in text
    assert "kept" not in text
