"""Generate the tables of docs/groups.md.

`python -m odradek.coordinator.group.transitions_doc` prints the page, `--write` writes it, `--check` fails if the
committed file differs. The text between the marker lines of each table is replaced. The rest of the page is written by
hand.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from odradek import generated_pages
from odradek.coordinator.group.classic.transitions import TRANSITIONS, ClassicState, Event
from odradek.coordinator.group.modern import transitions as modern_table
from odradek.coordinator.group.modern.member import MemberState
from odradek.runtime.machine import BUG, Refuse, To

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "groups.md"


def rendered(head: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [f"| {head} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def classic() -> str:
    """Return a Mermaid diagram of the state changes of classic groups, and a table with one row per event."""
    edges: dict[tuple[ClassicState, ClassicState], list[str]] = {}
    for (state, event), action in TRANSITIONS.cells.items():
        if isinstance(action, To) and action.state is not state:
            edges.setdefault((state, action.state), []).append(event.name)
    lines = ["```mermaid", "stateDiagram-v2"]
    for (before, after), events in edges.items():
        lines.append(f"    {_node(before)} --> {_node(after)}: {' / '.join(events)}")
    lines.append("```")
    states = list(ClassicState)
    rows = [[event.value, *(_cell(state, event) for state in states)] for event in Event]
    return "\n".join(lines) + "\n\n" + rendered("event", [state.value for state in states], rows)


def _node(state: ClassicState) -> str:
    return "[*]" if state is ClassicState.DEAD else state.value


def _cell(state: ClassicState, event: Event) -> str:
    action = TRANSITIONS.cells[state, event]
    if isinstance(action, To):
        return f"**{action.state.value}**"
    if isinstance(action, Refuse):
        return action.error.name
    return "-" if action is BUG else action.value


def modern() -> str:
    """Return a Mermaid diagram of the state changes of consumer protocol members, and a table of their events."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {MemberState.STABLE.name}: joins"]
    edges: dict[tuple[MemberState, MemberState], list[str]] = {}
    for (before, event), next_states in modern_table.TRANSITIONS.next_states.items():
        for after in next_states:
            if before is not after:
                edges.setdefault((before, after), []).append(event.name)
    lines += [f"    {before.name} --> {after.name}: {' / '.join(events)}" for (before, after), events in edges.items()]
    lines += [f"    {MemberState.UNREVOKED_PARTITIONS.name} --> [*]: REBALANCE_TIMEOUT", "```"]
    states = list(MemberState)
    rows = [[event.value, *(_member_cell(state, event) for state in states)] for event in modern_table.Event]
    return "\n".join(lines) + "\n\n" + rendered("event", [state.name for state in states], rows)


def _member_cell(state: MemberState, event: modern_table.Event) -> str:
    action = modern_table.TRANSITIONS.cells[state, event]
    return "-" if action is BUG else action.value


GENERATED: Final[dict[str, Callable[[], str]]] = {
    "coordinator/group/classic/transitions.py": classic,
    "coordinator/group/modern/transitions.py": modern,
}
"""Source file of a table -> function that generates the text between its marker lines."""


def page(text: str) -> str:
    """Return `text` with newly generated tables. Raise ValueError if a marker line is missing."""
    for source, generate in GENERATED.items():
        text = generated_pages.with_generated(PAGE, text, source, generate())
    return text


def main(arguments: list[str]) -> int:
    """Print, write or check the page. Return the exit code."""
    return generated_pages.main(arguments, {PAGE: page(PAGE.read_text())}, "odradek.coordinator.group.transitions_doc")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
