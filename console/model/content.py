"""Keys, values and headers of records as text: JSON, Avro by a schema registry, plain text, or hexadecimal digits."""

from __future__ import annotations

import json
import re
import unicodedata
from codecs import getincrementaldecoder
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from odradek.console.model.avro import avro_text
from odradek.console.model.avro_decoder import AvroUndecodable

if TYPE_CHECKING:
    from odradek.console.model.registry import SchemaRegistry

CELL_BYTES_MAX: Final = 400
"""Maximum bytes of a value that a row of a table shows."""
PAGE_BYTES_MAX: Final = 256 * 1024
"""Maximum bytes of a value that the page of a record shows, and that are decoded as JSON or Avro."""
CELL_VALUES_MAX: Final = 5_000
"""Maximum values in Avro of one value in a table, with all parts. A page decodes up to 100, each in about 10 ms."""
PAGE_VALUES_MAX: Final = 100_000
"""Maximum values in Avro of the value on the page of a record, with all parts."""
WIRE_FORMAT: Final = b"\x00"
"""First byte of a value with a schema id (Confluent's wire format). The schema id has the next four bytes."""
WIRE_PREFIX_BYTES: Final = 5
TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[][{},:]|[^][{},:"\s]+')
"""Parts of valid JSON without its white space."""
INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u2064\u2066-\u206f\ud800-\uf8ff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f\U000f0000-\U000ffffd"
    "\U00100000-\U0010fffd]"
)
"""Characters of the categories Cc, Cf, Cs and Co, without the line break and the tabulator."""
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
    values_max = PAGE_VALUES_MAX if pretty else CELL_VALUES_MAX
    return avro_text(schema, content[WIRE_PREFIX_BYTES:], values_max=values_max, pretty=pretty)


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
        json.loads(text, parse_int=str, parse_float=str)
    except RecursionError:
        raise ValueError("too deep") from None
    return indented(text, PAGE_BYTES_MAX) if pretty else " ".join(text.split("\n"))


def indented(text: str, characters_max: int) -> str:
    """Return JSON with line breaks and indentation. Names, numbers and their order are unchanged.

    The result ends when it has more than the maximum of characters: indentation multiplies the size of deep JSON.
    """
    parts: list[str] = []
    depth = counted = characters = 0
    for token in TOKENS.finditer(text):
        characters += sum(map(len, parts[counted:]))
        counted = len(parts)
        if characters > characters_max:
            break
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
    return INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def dump(content: bytes) -> str:
    """Return a hexadecimal dump: position, bytes, and the visible ASCII characters."""
    lines = []
    for start in range(0, len(content), DUMP_BYTES):
        line = content[start : start + DUMP_BYTES]
        characters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        lines.append(f"{start:06x}  {line.hex(' '):<{3 * DUMP_BYTES}} {characters}")
    return "\n".join(lines)
