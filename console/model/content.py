"""Keys, values and headers of records as text: JSON, Avro by a schema registry, plain text, or hexadecimal digits."""

from __future__ import annotations

import json
import re
import unicodedata
from codecs import getincrementaldecoder
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from odradek.console.model.avro import AvroUndecodable, avro_json

if TYPE_CHECKING:
    from odradek.console.model.registry import SchemaRegistry

CELL_BYTES_MAX: Final = 400
"""Maximum bytes of a value that a row of a table shows."""
PAGE_BYTES_MAX: Final = 256 * 1024
"""Maximum bytes of a value that the page of a record shows, and that are decoded as JSON or Avro."""
WIRE_FORMAT: Final = b"\x00"
"""First byte of a value with a schema id (Confluent's wire format). The schema id has the next four bytes."""
WIRE_PREFIX_BYTES: Final = 5
TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[][{},:]|[^][{},:"\s]+')
"""Parts of valid JSON without its white space."""
INDENT: Final = "  "
DUMP_BYTES: Final = 16
"""Bytes per line of a hexadecimal dump."""


class Format(Enum):
    """Form of content on a page. AUTO selects the first one that fits: Avro, JSON, text, hexadecimal."""

    AUTO = "auto"
    JSON = "json"
    AVRO = "avro"
    TEXT = "text"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class Content:
    """Content of a record as text.

    Attributes:
        format: How it was decoded, for a label: "null", "json", "avro", "text" or "hex".
        text: The text. Characters that a browser does not show are replaced by their codes.
        size: Bytes of the whole content.
        truncated: The text is not that of the whole content.
        note: The reason why it was not decoded as requested. Empty if it was.
    """

    format: str
    text: str
    size: int
    truncated: bool = False
    note: str = ""


async def decode(
    content: bytes | None, wanted: Format, registry: SchemaRegistry | None, *, pretty: bool = False
) -> Content:
    """Decode content. `pretty` is the form of a page: lines, and more of the content."""
    if content is None:
        return Content("null", "null", 0)
    bytes_max = PAGE_BYTES_MAX if pretty else CELL_BYTES_MAX
    note = ""
    if wanted is Format.AVRO or (wanted is Format.AUTO and registry is not None and is_wire_format(content)):
        try:
            text = await _avro_text(content, registry, pretty=pretty)
            return Content("avro", visible(text[:bytes_max]), len(content), len(text) > bytes_max)
        except AvroUndecodable as error:
            note = str(error)
    if wanted in {Format.AUTO, Format.JSON} and len(content) <= PAGE_BYTES_MAX:
        try:
            text = json_text(content, pretty=pretty)
            return Content("json", visible(text[:bytes_max]), len(content), len(text) > bytes_max, note)
        except ValueError as error:
            note = note or (f"not JSON: {error}" if wanted is Format.JSON else "")
    shown = content[:bytes_max]
    truncated = len(content) > bytes_max
    if wanted in {Format.TEXT, Format.JSON} or (wanted is not Format.HEX and is_text(shown, truncated=truncated)):
        return Content("text", visible(shown.decode(errors="replace")), len(content), truncated, note)
    text = dump(shown) if pretty else shown.hex(" ")
    return Content("hex", text, len(content), truncated, note)


async def _avro_text(content: bytes, registry: SchemaRegistry | None, *, pretty: bool) -> str:
    if registry is None:
        raise AvroUndecodable("no schema registry; start the console with --schema-registry")
    if not is_wire_format(content):
        raise AvroUndecodable("no schema id at the begin")
    if len(content) > PAGE_BYTES_MAX:
        raise AvroUndecodable(f"longer than {PAGE_BYTES_MAX} bytes")
    schema = await registry.schema(schema_id_of(content))
    value = avro_json(schema, content[WIRE_PREFIX_BYTES:])
    return json.dumps(value, ensure_ascii=False, indent=2 if pretty else None)


def is_wire_format(content: bytes) -> bool:
    """Return True if content can begin with a schema id."""
    return len(content) >= WIRE_PREFIX_BYTES and content[:1] == WIRE_FORMAT


def schema_id_of(content: bytes) -> int:
    """Return the schema id at the begin of content."""
    return int.from_bytes(content[1:WIRE_PREFIX_BYTES], "big")


def json_text(content: bytes, *, pretty: bool) -> str:
    """Return content that is a JSON object or array: on one line, or with `pretty` with indentation.

    Raise ValueError if it is neither.
    """
    text = content.decode()
    if not text.lstrip().startswith(("{", "[")):
        raise ValueError("neither an object nor an array")
    try:
        json.loads(text)
    except RecursionError:
        raise ValueError("too deep") from None
    return indented(text) if pretty else " ".join(text.split("\n"))


def indented(text: str) -> str:
    """Return JSON with line breaks and indentation. Names, numbers and their order are unchanged."""
    parts: list[str] = []
    depth = 0
    for token in TOKENS.finditer(text):
        found = token[0]
        if found in {"]", "}"}:
            depth -= 1
            if parts[-1] not in {"[", "{"}:
                parts.append("\n" + INDENT * depth)
            parts.append(found)
            continue
        if parts and parts[-1] in {"[", "{", ","}:
            parts.append("\n" + INDENT * depth)
        parts.append(": " if found == ":" else found)
        depth += found in {"[", "{"}
    return "".join(parts)


def is_text(content: bytes, *, truncated: bool = False) -> bool:
    """Return True if bytes are UTF-8 text without control characters. If truncated, the last one may be incomplete."""
    try:
        text = getincrementaldecoder("utf-8")().decode(content, final=not truncated)
    except UnicodeDecodeError:
        return False
    return not any(unicodedata.category(character) == "Cc" and character not in "\n\r\t" for character in text)


def visible(text: str) -> str:
    """Replace characters that are not visible, or that change the order of the text, by their codes."""
    return "".join(
        f"\\u{ord(character):04x}"
        if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co"} and character not in "\n\t"
        else character
        for character in text
    )


def dump(content: bytes) -> str:
    """Return a hexadecimal dump: position, bytes, and the visible ASCII characters."""
    lines = []
    for start in range(0, len(content), DUMP_BYTES):
        line = content[start : start + DUMP_BYTES]
        characters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        lines.append(f"{start:06x}  {line.hex(' '):<{3 * DUMP_BYTES}} {characters}")
    return "\n".join(lines)
