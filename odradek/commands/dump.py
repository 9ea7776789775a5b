"""`odradek dump`: decoded content of files of a data directory."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Annotated, Any

import typer

from odradek import run_module
from odradek.commands.options import Json
from odradek.commands.outputs import Output
from odradek.local.output import errors, print_json, text

DUMPED = Output("dump", more=("file", "entries"))


def dump(
    files: Annotated[
        list[Path],
        typer.Argument(help="Segments, indexes, producer snapshots, checkpoints.", exists=True, dir_okay=False),
    ],
    records: Annotated[bool, typer.Option("--records", help="Include the records of each batch.")] = False,
    as_json: Json = False,
) -> None:
    """Print the decoded content of files of a data directory. The broker may be running.

    With --records, the records of internal topics and of the metadata log are
    decoded, too.

    Examples:

      odradek dump odradek-data/broker-1/payments-0/*.log --records

      odradek dump odradek-data/broker-1/payments-0/*.txnindex --json
    """
    entries = decoded([str(file.resolve()) for file in files], records=records)
    if as_json:
        print_json(DUMPED.rows(entries))
        return
    for file in entries:
        print(file["file"])
        for entry in file["entries"]:
            print("  " + text(entry))


def decoded(files: list[str], *, records: bool) -> Any:
    """Decode the files in a new process, because the command line must not import the package `storage`.

    Raise typer.Exit if a file cannot be decoded. The error has been printed then.
    """
    command = run_module.command("odradek.storage.dump", *files, *(["--records"] if records else []))
    environment = run_module.environment()
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", check=False)
    if completed.returncode != 0:
        errors.print(completed.stderr.strip(), markup=False)
        raise typer.Exit(completed.returncode)
    return json.loads(completed.stdout)
