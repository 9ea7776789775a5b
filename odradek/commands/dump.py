"""``odradek dump``: what a file of the data directory holds."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Annotated, Any

import typer

from odradek import run_module
from odradek.commands.options import Json
from odradek.local.output import errors, print_json, text


def dump(
    files: Annotated[
        list[Path], typer.Argument(help="Segments, indexes, snapshots, checkpoints.", exists=True, dir_okay=False)
    ],
    records: Annotated[bool, typer.Option("--records", help="The records inside the batches too.")] = False,
    as_json: Json = False,
) -> None:
    """Show what files of a data directory hold, decoded; the broker may be running.

    Internal topics and the cluster metadata log are decoded record by record with --records.

    Examples:

      odradek dump odradek-data/broker-1/payments-0/00000000000000000000.log --records

      odradek dump odradek-data/broker-1/payments-0/*.txnindex --json
    """
    entries = decoded([str(file.resolve()) for file in files], records=records)
    if as_json:
        print_json(entries)
        return
    for file in entries:
        print(file["file"])
        for entry in file["entries"]:
            print("  " + text(entry))


def decoded(files: list[str], *, records: bool) -> Any:
    """Decode the files in a process of its own, since the command line imports no server package. Raise typer.Exit."""
    command = run_module.command("odradek.storage.dump", *files, *(["--records"] if records else []))
    environment = run_module.environment()
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", check=False)
    if finished.returncode != 0:
        errors.print(finished.stderr.strip(), markup=False)
        raise typer.Exit(finished.returncode)
    return json.loads(finished.stdout)
