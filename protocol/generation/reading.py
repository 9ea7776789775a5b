"""Read schemas from Kafka's jars: names, types, versions, defaults and flags. Descriptive text is dropped."""

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
    """Field of a schema.

    `type` is Kafka's, such as 'int32', '[]string' or '[]TopicData'. `default` is None if not specified.
    """

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
    """Schema of one message. `structs` contains the nested structs, each one after the structs that it uses.

    `cluster_metadata` is set for the records of `__cluster_metadata-0`. Other logs also have records of kind
    "metadata".
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
    """Read all schemas of the jars in this folder, sorted by name.

    Raise FileNotFoundError if one of the jars with schemas is missing.
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
    """Parse one JSON schema. Its comment lines are not valid JSON and are removed first."""
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
        versions=row.get("versions", tagged),  # a field without versions has those in which it is tagged
        nullable=row.get("nullableVersions", "none"),
        tagged=tagged,
        tag=int(row.get("tag", -1)),
        flexible=row.get("flexibleVersions"),
        ignorable=bool(row.get("ignorable", False)),
        # Kafka's generator treats JSON's null as "no default", and the string "null" as a default
        default=None if default is None else str(default).lower() if isinstance(default, bool) else str(default),
    )
