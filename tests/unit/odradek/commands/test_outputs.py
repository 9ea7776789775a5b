"""Fields of the commands: each is defined once, documented, and has a name of Kafka if Kafka has one."""

from __future__ import annotations

import dataclasses
import re
import zipfile
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from odradek import client
from odradek.commands import doc
from odradek.commands.outputs import Output, Shape
from odradek.commands.rows import KAFKA_NAMES
from odradek.commands.vocabulary import MEANINGS
from odradek.protocol.generation.naming import module_name
from tests.support.jars import PREVIOUS

if TYPE_CHECKING:
    from collections.abc import Iterator

TOOL_CLASSES = {
    "kafka-console-consumer": "consumer/DefaultMessageFormatter",
    "kafka-consumer-groups": "consumer/group/ConsumerGroupCommand",
    "kafka-delegation-tokens": "DelegationTokenCommand",
    "kafka-features": "FeatureCommand",
    "kafka-groups": "GroupsCommand",
    "kafka-topics": "TopicCommand",
    "kafka-transactions": "TransactionsCommand",
}
OFFSETS_OF_GROUPS = "OffsetsUtils"
"""Class that prints the plan of a reset, for the tools of all types of groups."""
OUTPUTS = doc.outputs()
KAFKA = {name: meaning.kafka for name, meaning in MEANINGS.items() if meaning.kafka}


def schema_fields(api: str) -> Iterator[str]:
    """Yield the names of all fields in the request and the response of an API."""
    module = import_module(f"odradek.protocol.messages.{module_name(api)}")
    for value in vars(module).values():
        yield from getattr(value, "__slots__", ())


def tool_code(tool: str) -> bytes:
    """Return the classes of a tool of Kafka, which contain its headings as text."""
    [jar] = PREVIOUS.glob("kafka-tools-[0-9]*.jar")
    with zipfile.ZipFile(jar) as classes:
        return b"".join(
            classes.read(name)
            for name in classes.namelist()
            if name.startswith(tuple(f"org/apache/kafka/tools/{each}" for each in (tool, OFFSETS_OF_GROUPS)))
        )


def test_each_command_with_json_has_defined_fields() -> None:
    options = {" ".join(path): {each.name for each in command.params} for path, command in doc.all_commands()}
    with_json = {command for command, names in options.items() if "as_json" in names}
    assert {output.command for output in OUTPUTS} == with_json


def test_each_field_has_one_meaning_and_each_meaning_a_field() -> None:
    assert {name for output in OUTPUTS for name in output.names} == set(MEANINGS)


def test_fields_of_nested_objects_belong_to_a_field_of_their_command() -> None:
    fields = {(output.command, name) for output in OUTPUTS for name in output.names}
    assert [output for output in OUTPUTS if output.within and (output.command, output.within) not in fields] == []


def test_each_object_of_a_command_is_defined_once() -> None:
    assert len({(output.command, output.within) for output in OUTPUTS}) == len(OUTPUTS)


@pytest.mark.parametrize("name", [name for name, place in KAFKA.items() if ":" not in place])
def test_field_with_a_name_of_the_protocol_is_in_the_schema(name: str) -> None:
    assert name in set(schema_fields(KAFKA[name]))


@pytest.mark.parametrize("tool", TOOL_CLASSES)
def test_fields_with_a_heading_of_a_tool_are_in_the_tool(tool: str) -> None:
    headings = {name: place.partition(": ")[2] for name, place in KAFKA.items() if place.startswith(f"{tool}: ")}
    assert headings
    code = tool_code(TOOL_CLASSES[tool])
    for name, heading in headings.items():
        assert re.sub(r"\W", "", heading).lower() == name.replace("_", "")
        assert heading.lstrip("-").encode() in code


def test_names_of_the_client_that_are_replaced_exist() -> None:
    for class_name, names in KAFKA_NAMES.items():
        fields = {field.name for field in dataclasses.fields(getattr(client, class_name))}
        assert names.keys() <= fields
        assert not fields.intersection(names.values())


def test_row_has_all_fields_in_order_and_refuses_others() -> None:
    output = Output("x", ("b", "a"), ("c",), Shape.OBJECT)
    assert list(output.row({"a": 1, "b": 2}).items()) == [("b", 2), ("a", 1), ("c", None)]
    with pytest.raises(ValueError, match=r"odradek x does not define: \['d'\]"):
        output.row({"d": 1})


def test_page_of_the_command_line_is_fresh() -> None:
    assert doc.page(doc.PAGE.read_text()) == doc.PAGE.read_text()
