"""Values of parameters: they have the types of the annotations, and invalid ones are refused, as by Typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from odradek.commands.configs import Kind
from odradek.commands.late_types import convert_late

convert_late()
app = typer.Typer()
seen: list[Any] = []


@app.command()
def command(
    kind: Kind,
    numbers: Annotated[list[int] | None, typer.Option()] = None,
    count: Annotated[int, typer.Option(min=1)] = 7,
    path: Path = Path("default"),
    existing: Annotated[Path | None, typer.Option(exists=True)] = None,
    name: str | None = None,
    words: Annotated[list[str] | None, typer.Option()] = None,
) -> None:
    seen[:] = [kind, numbers, count, path, existing, name, words]


def test_values_have_the_types_of_their_annotations(tmp_path: Path) -> None:
    words = ["topic", "--numbers", "1", "--numbers", "2", "--count", "3", "--path", "p", "--existing", str(tmp_path)]
    assert CliRunner().invoke(app, [*words, "--name", "n", "--words", "a", "--words", "b"]).exit_code == 0
    assert seen == [Kind.TOPIC, [1, 2], 3, Path("p"), tmp_path, "n", ["a", "b"]]
    assert CliRunner().invoke(app, ["group"]).exit_code == 0
    assert [seen[0], *seen[2:-1]] == [Kind.GROUP, 7, Path("default"), None, None]
    assert not seen[1]
    assert not seen[-1]


@pytest.mark.parametrize(
    "words", [["no-kind"], ["topic", "--count", "x"], ["topic", "--count", "0"], ["topic", "--existing", "/absent"], []]
)
def test_invalid_value_is_refused(words: list[str]) -> None:
    refused = CliRunner().invoke(app, words)
    assert (refused.exit_code, "Traceback" in refused.stderr) == (2, False)
