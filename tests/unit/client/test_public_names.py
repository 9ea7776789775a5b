"""Public names of the client package, and the modules that its import loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from odradek import client

NOT_IMPORTED = ("asyncio", "rich", "typer", "structlog", "odradek.protocol", "odradek.broker", "odradek.local")
NOT_USED = ("rich", "typer", "structlog", "odradek.broker", "odradek.storage", "odradek.cluster", "odradek.local")
SCRIPT = f"""
import sys, odradek, odradek.client
print([name for name in {NOT_IMPORTED} if name in sys.modules])
odradek.client.Producer, odradek.client.Consumer, odradek.client.cluster_status
print([name for name in {NOT_USED} if name in sys.modules])
"""


def test_each_public_name_is_in_its_module() -> None:
    assert sorted(client.__all__) == sorted(client._HOMES)
    for name in client.__all__:
        assert getattr(client, name) is not None
        assert not name.startswith("_")


def test_each_public_function_and_class_has_a_docstring() -> None:
    objects = {name: getattr(client, name) for name in client.__all__ if name not in {"EARLIEST", "LATEST"}}
    assert [name for name, value in objects.items() if not value.__doc__] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Missing'"):
        _ = client.Missing


def test_importing_the_package_loads_neither_asyncio_nor_messages_nor_the_command_line() -> None:
    finished = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert finished.stdout.splitlines() == ["[]", "[]"]
