"""Generate protocol/messages and protocol/records from the JSON schemas in Kafka's jars.

    python -m odradek.protocol.generate [--jars build/jars/kafka]     write the files
    python -m odradek.protocol.generate --check                        list stale files, exit code 1 if there are any

Each API (request and response) and each record (key and value) is one module. A nested struct keeps its name in the
schema. If both messages of a module define the name, it gets a prefix (RequestTopicData, ResponseTopicData).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.protocol.generation.naming import module_name
from odradek.protocol.generation.reading import read_schemas
from odradek.protocol.generation.rendering import (
    render_message_index,
    render_module,
    render_record_index,
    render_record_table,
)

if TYPE_CHECKING:
    from odradek.protocol.generation.reading import Schema

HERE: Final = Path(__file__).resolve().parent
FOLDERS: Final = ("messages", "records")


def render_all(schemas: list[Schema]) -> dict[str, str]:
    """Return the content of every generated file, by relative path."""
    files: dict[str, str] = {}
    headers = [schema for schema in schemas if schema.kind == "header"]
    apis = [schema for schema in schemas if schema.kind in {"request", "response"}]
    records = [schema for schema in schemas if schema.kind not in {"request", "response", "header"}]
    metadata = [schema for schema in records if schema.cluster_metadata]
    files["messages/headers.py"] = render_module(headers)
    for name, members in _by_module(apis).items():
        files[f"messages/{name}.py"] = render_module(members)
    files["messages/__init__.py"] = render_message_index([schema for schema in apis if schema.kind == "request"])
    for schema in metadata:
        files[f"records/metadata/{module_name(schema.name)}.py"] = render_module([schema])
    files["records/metadata/__init__.py"] = render_record_index("metadata", metadata)
    others = [schema for schema in records if not schema.cluster_metadata]
    for name, members in _by_module(others).items():
        files[f"records/{name}.py"] = render_module(members)
    files["records/__init__.py"] = render_record_table(records)
    return files


def stale_files(wanted: dict[str, str], root: Path) -> list[str]:
    """Return the generated files that are missing, different or superfluous."""
    present = {str(path.relative_to(root)) for folder in FOLDERS for path in (root / folder).rglob("*.py")}
    stale = [name for name in sorted(wanted) if _content(root / name) != wanted[name]]
    return stale + sorted(present - wanted.keys())


def write_all(wanted: dict[str, str], root: Path) -> None:
    for name in stale_files(wanted, root):
        path = root / name
        if name not in wanted:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[name], encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m odradek.protocol.generate", description="Generate the message classes."
    )
    parser.add_argument(
        "--check", action="store_true", help="write no files; list stale files and exit with code 1 if there are any"
    )
    parser.add_argument(
        "--jars", type=Path, default=HERE.parent / "build" / "jars" / "kafka", help="folder with Kafka's jars"
    )
    options = parser.parse_args(arguments)
    try:
        wanted = render_all(read_schemas(options.jars))
    except FileNotFoundError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not options.check:
        write_all(wanted, HERE)
        return 0
    stale = stale_files(wanted, HERE)
    for name in stale:
        print(f"stale: protocol/{name}")
    return 1 if stale else 0


def _by_module(schemas: list[Schema]) -> dict[str, list[Schema]]:
    modules: dict[str, list[Schema]] = {}
    for schema in schemas:
        modules.setdefault(module_name(schema.name), []).append(schema)
    return modules


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
