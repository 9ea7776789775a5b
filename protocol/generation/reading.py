"""Schemas as data: names, types, versions, defaults and flags out of Kafka's jars; descriptive text is dropped here."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

JARS: Final = (
    "kafka-clients",
    "kafka-group-coordinator",
    "kafka-metadata",
    "kafka-raft",
    "kafka-server-common",
    "kafka-share-coordinator",
    "kafka-storage",
    "kafka-transaction-coordinator",
)
SCHEMA_PATH: Final = re.compile(r"^(common/)?(message|metadata)/\w+\.json$")
COMMENT_LINE: Final = re.compile(r"^\s*//.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SchemaField:
    """One field; `type` is Kafka's, such as 'int32', '[]string' or '[]TopicData'. `default` is None when not given."""

    name: str
    type: str
    versions: str
    nullable: str
    tagged: str
    tag: int
    flexible: str | None
    ignorable: bool
    default: str | None

    @property
    def element(self) -> str:
        return self.type.removeprefix("[]")

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def is_struct(self) -> bool:
        return self.element[0].isupper()


@dataclass(frozen=True, slots=True)
class Schema:
    """One message. `structs` holds the nested structs, each after those that it uses.

    `cluster_metadata` is set for the records of `__cluster_metadata-0`; other logs have records of kind "metadata" too.
    """

    name: str
    cluster_metadata: bool
    kind: str
    api_key: int
    valid: str
    flexible: str
    unstable_latest: bool
    listeners: tuple[str, ...]
    fields: tuple[SchemaField, ...]
    structs: dict[str, tuple[SchemaField, ...]]


def read_schemas(jars: Path) -> list[Schema]:
    """Every schema of the jars in this folder, in the order of their names.

    Raises FileNotFoundError when one of the jars that carry schemas is missing.
    """
    found: dict[str, Schema] = {}
    for name in JARS:
        paths = sorted(jars.glob(f"{name}-[0-9]*.jar"))
        if len(paths) != 1:
            raise FileNotFoundError(f"{jars}: expected one {name}-<version>.jar, found {len(paths)}")
        with zipfile.ZipFile(paths[0]) as jar:
            for entry in jar.namelist():
                if SCHEMA_PATH.match(entry):
                    schema = parse_schema(
                        jar.read(entry).decode(), cluster_metadata=entry.startswith("common/metadata/")
                    )
                    found[schema.name] = schema
    return [found[name] for name in sorted(found)]


def parse_schema(text: str, *, cluster_metadata: bool) -> Schema:
    data: dict[str, Any] = json.loads(COMMENT_LINE.sub("", text))
    common = {struct["name"]: struct["fields"] for struct in data.get("commonStructs", [])}
    structs: dict[str, tuple[SchemaField, ...]] = {}
    fields = _fields(data.get("fields", []), common, structs)
    return Schema(
        name=data["name"],
        cluster_metadata=cluster_metadata,
        kind=data["type"],
        api_key=int(data.get("apiKey", -1)),
        valid=data["validVersions"],
        flexible=data.get("flexibleVersions", "none"),
        unstable_latest=bool(data.get("latestVersionUnstable", False)),
        listeners=tuple(data.get("listeners", ())),
        fields=fields,
        structs=structs,
    )


def _fields(
    rows: list[dict[str, Any]],
    common: dict[str, list[dict[str, Any]]],
    structs: dict[str, tuple[SchemaField, ...]],
) -> tuple[SchemaField, ...]:
    result = []
    for row in rows:
        field = _field(row)
        if field.is_struct and field.element not in structs:
            inner = row["fields"] if "fields" in row else common[field.element]
            structs[field.element] = _fields(inner, common, structs)
        result.append(field)
    return tuple(result)


def _field(row: dict[str, Any]) -> SchemaField:
    tagged = row.get("taggedVersions", "none")
    default = row.get("default")
    return SchemaField(
        name=row["name"],
        type=row["type"],
        versions=row.get("versions", tagged),  # a field without versions of its own is present where it is tagged
        nullable=row.get("nullableVersions", "none"),
        tagged=tagged,
        tag=int(row.get("tag", -1)),
        flexible=row.get("flexibleVersions"),
        ignorable=bool(row.get("ignorable", False)),
        # JSON's null is "not given" to Kafka's own generator, unlike the string "null"
        default=None if default is None else str(default).lower() if isinstance(default, bool) else str(default),
    )
