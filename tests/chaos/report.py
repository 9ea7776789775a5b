"""Output of the figures and findings of a run: to the console, and to docs/chaos.md and docs/chaos.json."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from rich.table import Table

from tests.support.jars import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from tests.chaos.run import Options, Outcome

DOCUMENT = ROOT / "docs" / "chaos.md"
RAW = ROOT / "docs" / "chaos.json"
TITLES = {
    "seconds": "length, s",
    "operations": "operations",
    "records_acknowledged": "records acknowledged",
    "records_unknown": "records with unknown result",
    "records_read": "records read",
    "transactions_begun": "transactions begun",
    "transactions_committed": "  committed",
    "transactions_aborted": "  aborted",
    "transactions_unknown": "  with unknown result",
    "offsets_listed": "ListOffsets responses",
    "clients_hung": "clients that hung in a library call",
    "kills": "kill -9 of a broker",
    "pauses": "SIGSTOP of a broker",
    "stops": "SIGTERM of a broker",
    "longest_unavailability_s": "longest time without an acknowledgment, s",
    "longest_unavailability_of_a_partition_s": "  of one partition, s",
    "kill_to_commit_median_s": "from kill -9 to the first new commit, median, s",
    "kill_to_commit_max_s": "  longest, s",
    "kill_to_commit_of_all_median_s": "from kill -9 until every producer has committed again, median, s",
    "kill_to_commit_of_all_max_s": "  longest, s",
    "kill_to_declaration_median_s": "from kill -9 to the first failure declaration, median, s",
    "kill_to_declaration_max_s": "  longest, s",
    "recovery_after_heal_s": "from the end of all faults until all clients make progress, s",
}


SECURED = "All clients logged in by SASL_SSL. Certificates, the authority, passwords and an ACL changed during the run."
GROUP_TITLES = (
    "group",
    "protocol",
    "processes",
    "generations",
    "inputs",
    "outputs aborted",
    "longest time without a commit, s",
)
GROUP_NAMES = 2


def rows(outcome: Outcome) -> list[tuple[str, str]]:
    """Return (title, value) of all figures and counters."""
    figures = outcome.figures.as_dict()
    table = [(title, _formatted(figures[name])) for name, title in TITLES.items()]
    table += [(f"faults: `{kind}`", str(count)) for kind, count in sorted(outcome.figures.faults.items())]
    table += [(f"frames: `{kind}`", str(count)) for kind, count in sorted(outcome.figures.frames.items())]
    return table + [(name, str(count)) for name, count in sorted(outcome.findings.counters.items())]


def _formatted(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def command(options: Options, *more: str) -> str:
    """Return the command that repeats the faults of a run."""
    plain = () if options.secure or options.system != "odradek" else ("--plain",)
    given = " ".join((f"--seed {options.seed} --brokers {options.brokers}", *plain, *more))
    return f"make chaos MINUTES={options.seconds / 60:g} ARGS='{given}'"


def report(outcome: Outcome, options: Options, console: Console) -> None:
    table = Table(title=f"{options.system}, {options.brokers} brokers, seed {options.seed}")
    table.add_column("")
    table.add_column("", justify="right")
    for title, value in rows(outcome):
        table.add_row(title, value)
    console.print(table)
    _report_groups(outcome, console)
    for finding in outcome.findings.violations:
        console.print(f"VIOLATION {finding}", style="red", markup=False)
    for finding in outcome.findings.delays:
        console.print(f"{'late' if outcome.overloaded else 'TOO LATE'} {finding}", style="yellow", markup=False)
    if outcome.overloaded:
        console.print("the machine was overloaded: exceeded time limits do not fail the run", style="yellow")
    console.print("FAILED" if outcome.failed else "no violation found", style="red" if outcome.failed else "green")
    if outcome.failed:
        console.print(f"To repeat the same faults: {command(options)}")


def group_rows(outcome: Outcome) -> list[tuple[str, ...]]:
    """Return the figures of each group, in the order of GROUP_TITLES."""
    table = []
    for name, group in sorted(outcome.findings.groups.items()):
        counts = (group.members, group.rebalances, group.inputs, group.aborted)
        table.append((name, group.protocol, *(f"{count:,}" for count in counts), f"{group.longest_pause_s:.2f}"))
    return table


def _report_groups(outcome: Outcome, console: Console) -> None:
    table = Table(title="Groups")
    for number, title in enumerate(GROUP_TITLES):
        table.add_column(title, justify="left" if number < GROUP_NAMES else "right")
    for row in group_rows(outcome):
        table.add_row(*row)
    console.print(table)


def write_json(outcome: Outcome, options: Options, path: Path) -> None:
    """Write all figures and findings as JSON."""
    raw = {
        "system": options.system,
        "seed": options.seed,
        "brokers": options.brokers,
        "secure": options.secure,
        "overloaded": outcome.overloaded,
        "violations": outcome.findings.violations,
        "delays": outcome.findings.delays,
        "figures": outcome.figures.as_dict(),
        "counters": outcome.findings.counters,
        "groups": {name: figures.as_dict() for name, figures in outcome.findings.groups.items()},
    }
    path.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")


def write_documents(outcome: Outcome, options: Options) -> None:
    """Write docs/chaos.md and docs/chaos.json."""
    overloaded = " (the machine was overloaded)" if outcome.overloaded else ""
    findings = outcome.findings
    hostile = (
        "A hostile client attacked all brokers during the whole run, with forged, damaged, huge and excessive requests."
    )
    head = [
        "# Chaos",
        "",
        f"Written by `{command(options, '--write')}`. Clients: confluent-kafka,",
        "aiokafka, kafka-python and Java.",
        "Faults: kill -9, SIGSTOP and SIGTERM of processes, and a proxy that disconnects, stalls,",
        "delays and drops. The simulator's checkers (`tests/sim/checkers`) evaluate the run. `tests/chaos/README.md`",
        f"describes the faults. The run used {os.cpu_count()} cores, shared by brokers, proxy and clients.",
        *(["", SECURED] if options.secure else []),
        *(["", hostile] if options.attacks else []),
        "",
        f"Violations: **{len(findings.violations)}**. Exceeded time limits: {len(findings.delays)}{overloaded}.",
        "",
        "| | |",
        "|---|---:|",
    ]
    lines = [f"| {title.replace('  ', '&emsp;')} | {value} |" for title, value in rows(outcome)]
    lines += [
        "",
        "Members of `committers-...` groups read and commit their offsets. Members of all other groups write one",
        "output per input, and commit the output and the offset in one transaction. The checkers verify that every",
        "visible input has exactly one visible output, and that no other offset is committed.",
        "",
        f"| {' | '.join(GROUP_TITLES)} |",
        f"|{'---|' * GROUP_NAMES}{'---:|' * (len(GROUP_TITLES) - GROUP_NAMES)}",
    ]
    lines += [f"| {' | '.join(row)} |" for row in group_rows(outcome)]
    DOCUMENT.write_text("\n".join(head + lines) + "\n", encoding="utf-8")
    write_json(outcome, options, RAW)
