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
    levels: Annotated[list[int] | None, typer.Option(max=3)] = None,
    seconds: Annotated[float, typer.Option(min=0.1, max=9)] = 1.5,
) -> None:
    seen[:] = [kind, numbers, count, path, existing, name, words, seconds]


def test_values_have_the_types_of_their_annotations(tmp_path: Path) -> None:
    words = ["topic", "--numbers", "1", "--numbers", "2", "--count", "3", "--path", "p", "--existing", str(tmp_path)]
    assert (
        CliRunner().invoke(app, [*words, "--name", "n", "--words", "a", "--words", "b", "--seconds", "2"]).exit_code
        == 0
    )
    assert seen == [Kind.TOPIC, [1, 2], 3, Path("p"), tmp_path, "n", ["a", "b"], 2.0]
    assert CliRunner().invoke(app, ["group"]).exit_code == 0
    assert [seen[0], *seen[2:-2], seen[-1]] == [Kind.GROUP, 7, Path("default"), None, None, 1.5]
    assert not seen[1]
    assert not seen[-2]


@pytest.mark.parametrize(
    ("option", "text", "index", "value"),
    [
        ("--count", "+8", 2, 8),
        ("--count", "1_000", 2, 1000),
        ("--count", "12345678901234567890", 2, 12345678901234567890),
        ("--numbers", "-4", 1, [-4]),
        ("--numbers", "1_0", 1, [10]),
        ("--seconds", "0.1", -1, 0.1),
        ("--seconds", "5e-1", -1, 0.5),
    ],
)
def test_numbers_in_each_form_are_converted(option: str, text: str, index: int, value: Any) -> None:
    assert CliRunner().invoke(app, ["topic", option, text]).exit_code == 0
    assert seen[index] == value


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        ("--count", "0", "0 is not a number from 1 on"),
        ("--count", "-" + "9" * 50, "is not a number from 1 on"),
        ("--seconds", "9.5", "9.5 is not a number from 0.1 to 9"),
        ("--levels", "4", "4 is not a number up to 3"),
    ],
)
def test_number_out_of_range_is_refused_with_its_option_and_its_range(option: str, text: str, expected: str) -> None:
    refused = CliRunner().invoke(app, ["topic", option, text])
    message = " ".join(refused.stderr.replace("│", " ").split())
    assert refused.exit_code == 2
    assert f"Invalid value for '{option}': " in message
    assert expected in message


@pytest.mark.parametrize(
    "words",
    [
        ["no-kind"],
        ["topic", "--count", "x"],
        ["topic", "--count", "0"],
        ["topic", "--numbers", "1", "--numbers", "x"],
        ["topic", "--seconds", "9.5"],
        ["topic", "--existing", "/absent"],
        [],
    ],
)
def test_invalid_value_is_refused(words: list[str]) -> None:
    refused = CliRunner().invoke(app, words)
    assert (refused.exit_code, "Traceback" in refused.stderr) == (2, False)
