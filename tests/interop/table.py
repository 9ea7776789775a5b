"""docs/clients.md: which client does what here, generated from the results of the tests that ran.

``pytest tests/interop --write-client-table`` writes it; every complete run compares.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

PATH = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
CLIENTS = {
    "confluent-kafka": "confluent-kafka",
    "kafka-python": "kafka-python",
    "aiokafka": "aiokafka",
    "Java 4.3": None,
    "Kafka's tools 4.3": None,
}
_results: dict[tuple[str, str], bool] = {}


def record(client: str, feature: str, *, passed: bool) -> None:
    """Note one result; a feature works only if every test of it passed."""
    assert client in CLIENTS, client
    _results[client, feature] = _results.get((client, feature), True) and passed


def results() -> list[tuple[str, str, bool]]:
    """Everything noted so far, in a form that can be handed to another process."""
    return [(client, feature, passed) for (client, feature), passed in _results.items()]


def render() -> str:
    clients = [client for client in CLIENTS if any(name == client for name, _ in _results)]
    titles = [f"{client} {version(package)}" if (package := CLIENTS[client]) else client for client in clients]
    lines = [
        "# Clients",
        "",
        "Generated from the results of `tests/interop`: real clients against a real broker process. A dash: not asked of that client.",
        "",
        "| feature | " + " | ".join(titles) + " |",
        "|---|" + "---|" * len(titles),
    ]
    for feature in sorted({feature for _, feature in _results}):
        cells = [cell(client, feature) for client in clients]
        lines.append(f"| {feature} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def settle(*, write: bool) -> str:
    """Write the table, or compare it with docs/clients.md when everything that stands there was asked again.

    Returns what is wrong, or an empty string.
    """
    if not _results:
        return ""
    if write:
        PATH.write_text(render(), encoding="utf-8")
        return ""
    before = PATH.read_text(encoding="utf-8") if PATH.exists() else ""
    if before and before != render() and _asked(before) <= _results.keys():
        return f"{PATH.name} is not what these results give; renew it: pytest tests/interop --write-client-table"
    return ""


def _asked(text: str) -> set[tuple[str, str]]:
    """The cells of a written table that hold a result."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    if not rows:
        return set()
    clients = [next(client for client in CLIENTS if title.startswith(client)) for title in rows[0][1:]]
    return {
        (client, row[0]) for row in rows[1:] for client, result in zip(clients, row[1:], strict=True) if result != "-"
    }


def cell(client: str, feature: str) -> str:
    result = _results.get((client, feature))
    return "-" if result is None else ("yes" if result else "**no**")
