"""Generate the table of docs/transactions.md.

`python -m odradek.coordinator.txn.transitions_doc` prints the page, `--write` writes it, `--check` fails if the
committed file differs. The text between the two marker lines is replaced. The rest of the page is written by hand.
"""

import sys
from pathlib import Path
from typing import Final

from odradek import generated_pages
from odradek.coordinator.txn.transitions import TRANSITIONS, Event, Outcome
from odradek.protocol.txn_state import TxnState
from odradek.runtime.machine import BUG, Refuse, To

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "transactions.md"


def diagram() -> str:
    """Return a Mermaid state diagram. Events that do not change the state have no arrow."""
    edges: dict[tuple[TxnState, TxnState], list[Event]] = {}
    for (state, event), action in TRANSITIONS.cells.items():
        if isinstance(action, To):
            edges.setdefault((state, action.state), []).append(event)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {TxnState.EMPTY.kafka_name}: {Event.INIT.value}"]
    for (before, after), events in edges.items():
        lines.append(f"    {before.kafka_name} --> {after.kafka_name}: {' / '.join(event.value for event in events)}")
    lines += [f"    {TxnState.DEAD.kafka_name} --> [*]", "```"]
    return "\n".join(lines)


def table() -> str:
    """Return a Markdown table with one row per event and one column per state."""
    states = list(TxnState)
    lines = [
        "| event | " + " | ".join(state.kafka_name for state in states) + " |",
        "|---" * (len(states) + 1) + "|",
    ]
    lines += [f"| {event.value} | " + " | ".join(_cell(state, event) for state in states) + " |" for event in Event]
    return "\n".join(lines)


def page(text: str) -> str:
    """Return `text` with the generated part replaced. Raise ValueError if the marker lines are missing."""
    return generated_pages.with_generated(PAGE, text, "coordinator/txn/transitions.py", f"{diagram()}\n\n{table()}")


def main(arguments: list[str]) -> int:
    """Print, write or check the page. Return the exit code."""
    return generated_pages.main(arguments, {PAGE: page(PAGE.read_text())}, "odradek.coordinator.txn.transitions_doc")


def _cell(state: TxnState, event: Event) -> str:
    action = TRANSITIONS.cells[state, event]
    if isinstance(action, To):
        return f"**{action.state.kafka_name}**"
    if isinstance(action, Refuse):
        return action.error.name
    if action is BUG:
        return "-"
    return {Outcome.RESPOND: "response", Outcome.RETRY: "waits"}[action]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
