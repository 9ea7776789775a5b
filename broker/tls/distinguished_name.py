"""The subject of an X.509 certificate as text, in the form of RFC 2253 that Java prints.

Kafka makes the principal of a client certificate from that text (`X500Principal.getName`). Rules in
`ssl.principal.mapping.rules` and ACLs of existing clusters depend on its exact characters.
"""

from typing import Final

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OBJECT_ID: Final = 0x06
_VERSION: Final = 0xA0
"""Tag of the version of a certificate, which version 1 does not have."""
_FIELDS_BEFORE_SUBJECT: Final = 4
"""Serial number, signature algorithm, issuer and validity (RFC 5280, section 4.1)."""
_OBJECT_ID_BYTES_MAX: Final = 256
"""Maximum bytes of an object id. Those of names have three to eleven."""
_STRING_TAGS: Final = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E)
"""Tags of UTF8String, PrintableString, T61String, IA5String, GeneralString and BMPString.

Java decodes the bytes of each of them as UTF-8. Values of all other types are printed in hexadecimal.
"""
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""Object id -> the keyword of RFC 2253. All other attributes are printed by their object ids."""
_ESCAPED: Final = ',=+<>#;"\\'


def subject_name(certificate: bytes) -> str:
    """Return the name of the subject of a certificate in DER. Raise ValueError if it is malformed."""
    position, _ = _content(certificate, 0, _SEQUENCE)
    position, _ = _content(certificate, position, _SEQUENCE)
    if _tag(certificate, position) == _VERSION:
        position = _content(certificate, position, _VERSION)[1]
    for _ in range(_FIELDS_BEFORE_SUBJECT):
        position = _content(certificate, position, None)[1]
    return rfc2253_name(certificate[position : _content(certificate, position, _SEQUENCE)[1]])


def rfc2253_name(name: bytes) -> str:
    """Return a Name in DER as text: the last relative name first. Raise ValueError if it is malformed."""
    position, end = _content(name, 0, _SEQUENCE)
    relative_names: list[str] = []
    while position < end:
        attribute, position = _content(name, position, _SET)
        attributes: list[str] = []
        while attribute < position:
            start, attribute = _content(name, attribute, _SEQUENCE)
            attributes.append(_attribute(name, start, attribute))
        relative_names.append("+".join(attributes))
    return ",".join(reversed(relative_names))


def _attribute(name: bytes, position: int, end: int) -> str:
    start, position = _content(name, position, _OBJECT_ID)
    object_id = _object_id(name[start:position])
    tag = _tag(name, position)
    start, value_end = _content(name, position, None)
    if value_end != end:
        raise ValueError("malformed DER: an attribute of a name has more than one value")
    keyword = _KEYWORDS.get(object_id)
    if keyword is None or tag not in _STRING_TAGS:
        return f"{keyword or object_id}=#{name[position:end].hex()}"
    return f"{keyword}={_escaped(name[start:end].decode())}"


def _escaped(text: str) -> str:
    inner = text.strip(" ")
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - before - len(inner)
    escaped = "".join(f"\\{char}" if char in _ESCAPED else char for char in inner).replace("\0", "\\00")
    return "\\ " * before + escaped + "\\ " * after


def _object_id(encoded: bytes) -> str:
    """Return an object id in dotted form (X.690, section 8.19)."""
    if len(encoded) > _OBJECT_ID_BYTES_MAX:
        raise ValueError(f"an object id of a name has more than {_OBJECT_ID_BYTES_MAX} bytes")
    numbers: list[int] = []
    number = 0
    for octet in encoded:
        number = number << 7 | octet & 0x7F
        if not octet & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or encoded[-1] & 0x80:
        raise ValueError("malformed DER: an object id is incomplete")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _tag(der: bytes, position: int) -> int:
    if position >= len(der):
        raise ValueError("malformed DER: an element is incomplete")
    return der[position]


def _content(der: bytes, position: int, tag: int | None) -> tuple[int, int]:
    """Return the range of the content of the element at `position`. Raise ValueError if its tag is not `tag`."""
    try:
        found, length = der[position], der[position + 1]
        position += 2
        if length & 0x80:
            octets = length & 0x7F
            length = int.from_bytes(der[position : position + octets])
            position += octets
    except IndexError:
        raise ValueError("malformed DER: an element is incomplete") from None
    if tag is not None and found != tag:
        raise ValueError(f"malformed DER: tag {found:#x} in place of {tag:#x}")
    if position + length > len(der):
        raise ValueError("malformed DER: an element is incomplete")
    return position, position + length
