"""`odradek dump`: decoded content of files of a data directory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek import run_module
from odradek.commands.options import Json
from odradek.commands.outputs import Output
from odradek.local.output import FAILED, errors, print_json, text
from odradek.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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
    decoded, too. Exit code 1: a file is damaged, or it cannot be read.

    Examples:

      odradek dump odradek-data/broker-1/payments-0/*.log --records

      odradek dump odradek-data/broker-1/payments-0/*.txnindex --json
    """
    entries = decoded([str(file.resolve()) for file in files], records=records)
    if as_json:
        print_json(DUMPED.rows(entries))
    else:
        for file in entries:
            print(file["file"])
            for entry in file["entries"]:
                print("  " + text(entry))
    damaged = {file["file"]: found for file in entries if (found := list(defects(file["entries"])))}
    sys.stdout.flush()
    for path, found in damaged.items():
        others = f", and {counted(len(found) - 1, 'other defect')}" if len(found) > 1 else ""
        problem = f"{path} is damaged: {found[0]}{others}"
        errors.print(f"{problem}; if its broker is writing to it, repeat the command", markup=False)
    if damaged:
        raise typer.Exit(FAILED)


def defects(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the defects of a file: damaged bytes, batches with a wrong checksum, and records that cannot be decoded."""
    for entry in entries:
        if "error" in entry:
            yield entry["error"]
        elif entry.get("valid") is False:
            yield f"the checksum of the batch at byte {entry['position']} does not match"
        else:
            place = f"record in the batch at byte {entry.get('position')}"
            yield from (f"{place}: {record['error']}" for record in entry.get("records", ()) if "error" in record)


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
