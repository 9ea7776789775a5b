"""Output of the command line in any encoding."""

from __future__ import annotations

import json
import sys
from io import BytesIO, TextIOWrapper

import pytest

from odradek.commands.application import print_all_characters

WORDS = ["\xfc", "\u4e2d", "\U0001f600", "\udcff"]


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1", "utf-8"])
def test_characters_that_the_encoding_of_the_output_lacks_are_printed_as_escapes_of_json(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    data = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(data, encoding=encoding))
    print_all_characters()
    print(json.dumps(WORDS, ensure_ascii=False), flush=True)
    assert json.loads(data.getvalue().decode(encoding)) == WORDS
