"""``odradek dump``: what a file of the data directory holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from odradek.commands.options import Json
from odradek.local.output import ask, print_json, text


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
    arguments = ["dump", *(str(file.resolve()) for file in files)]
    if records:
        arguments.append("--records")
    answer = ask(*arguments)
    if as_json:
        print_json(answer)
        return
    for file in answer:
        print(file["file"])
        for entry in file["entries"]:
            print("  " + text(entry))
