"""Files in memory."""

from __future__ import annotations

import ssl
from pathlib import Path

from odradek.memory_files import memory_file
from tests.support.certificates import issue


def test_key_and_certificate_in_memory_are_loaded_and_the_file_is_gone_afterwards() -> None:
    broker = issue("broker")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with memory_file((broker.key_pem() + broker.pem).encode()) as path:
        context.load_cert_chain(path)
        assert Path(path).stat().st_nlink == 0  # no directory has it
    assert not Path(path).exists()
