"""Generation of message classes from the schemas in Kafka's jars."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from odradek.protocol.generate import HERE, main, render_all, stale_files, write_all
from odradek.protocol.generation.naming import module_name, snake
from odradek.protocol.generation.reading import COMMENT_LINE, SCHEMA_PATH, parse_schema, read_schemas
from odradek.protocol.generation.rendering import render_module
from tests.support.jars import REFERENCE

if TYPE_CHECKING:
    from pathlib import Path

TEXT_LENGTH_MIN = 25  # shorter descriptions may equal a part of a name


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    return render_all(read_schemas(REFERENCE))


def test_committed_files_are_current(generated: dict[str, str]) -> None:
    assert stale_files(generated, HERE) == []


def test_stale_missing_and_superfluous_files_are_found_and_repaired(generated: dict[str, str], tmp_path: Path) -> None:
    assert stale_files(generated, tmp_path) == sorted(generated)
    write_all(generated, tmp_path)
    (tmp_path / "messages" / "produce.py").write_text("old")
    (tmp_path / "records" / "end_txn_marker.py").unlink()
    (tmp_path / "records" / "superfluous.py").write_text("")
    assert stale_files(generated, tmp_path) == [
        "messages/produce.py",
        "records/end_txn_marker.py",
        "records/superfluous.py",
    ]
    write_all(generated, tmp_path)
    assert stale_files(generated, tmp_path) == []


def test_check_lists_stale_files_and_exits_1(
    generated: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("odradek.protocol.generate.HERE", tmp_path)
    assert main(["--jars", str(REFERENCE)]) == 0
    assert main(["--check", "--jars", str(REFERENCE)]) == 0
    (tmp_path / "messages" / "fetch.py").write_text("old")
    assert main(["--check", "--jars", str(REFERENCE)]) == 1
    assert capsys.readouterr().out == "stale: protocol/messages/fetch.py\n"


def test_missing_jars_are_an_error_of_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--jars", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_every_schema_of_every_jar_is_generated(generated: dict[str, str]) -> None:
    text = "\n".join(generated.values())
    names = [json_schema["name"] for json_schema in raw_schemas()]
    assert len(names) == 286
    for name in names:
        assert f"\nclass {name}(Message):" in text


def test_descriptions_of_the_schemas_are_not_copied(generated: dict[str, str]) -> None:
    text = "\n".join(generated.values())
    abouts = {about for schema in raw_schemas() for about in descriptions(schema) if len(about) >= TEXT_LENGTH_MIN}
    assert len(abouts) > 500
    assert [about for about in abouts if about in text] == []


def raw_schemas() -> list[dict[str, Any]]:
    schemas: list[dict[str, Any]] = []
    for path in sorted(REFERENCE.glob("kafka-*.jar")):
        with zipfile.ZipFile(path) as jar:
            entries = [entry for entry in jar.namelist() if SCHEMA_PATH.match(entry)]
            schemas += [json.loads(COMMENT_LINE.sub("", jar.read(entry).decode())) for entry in entries]
    return schemas


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
def test_field_names_are_in_snake_case(name: str, expected: str) -> None:
    assert snake(name) == expected


def test_request_and_response_or_key_and_value_share_a_module() -> None:
    assert module_name("ProduceRequest") == module_name("ProduceResponse") == "produce"
    assert module_name("TransactionLogKey") == module_name("TransactionLogValue") == "transaction_log"
    assert module_name("RequestHeader") == "request_header"


SCHEMA = """
// a comment with "quotes" in it
{ "name": "%s", "type": "%s", "apiKey": 1, "validVersions": "0-2", "flexibleVersions": "2+",
  "fields": [
    // a second comment
    { "name": "Items", "type": "[]Item", "versions": "0+", "nullableVersions": "1+", "about": "It is not copied.",
      "fields": [ { "name": "Mask", "type": "int32", "versions": "0+", "default": "0x7f" } ] },
    { "name": "Epoch", "type": "int64", "taggedVersions": "2+", "tag": 0, "default": -1, "ignorable": true },
    { "name": "Single", "type": "Item", "versions": "1+", "nullableVersions": "1+", "default": "null" }
  ] }
"""


def test_request_and_response_are_rendered_into_one_module() -> None:
    schemas = [
        parse_schema(SCHEMA % (f"Sample{schema_type.capitalize()}", schema_type), cluster_metadata=False)
        for schema_type in ("request", "response")
    ]
    text = render_module(schemas)
    assert "class RequestItem(Struct):" in text  # a struct name in both schemas gets the schema type as prefix
    assert "class ResponseItem(Struct):" in text
    assert "items []RequestItem 0+ n1+\nepoch int64 2+ t0@2+ i\nsingle RequestItem 1+ n1+" in text
    assert "        mask: int = 127,\n" in text
    assert "        epoch: int = -1,\n" in text
    assert "        items: list[RequestItem] | None = NEW,\n" in text
    assert "        self.items = [] if items is NEW else items\n" in text
    assert "        single: RequestItem | None = None,\n" in text
    assert "MAX_VERSION: ClassVar[int] = 2" in text
    assert "copied" not in text
