"""Fuzz target of message decoders. An input is: kind, API key, version (one byte each), and the encoded message."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

from odradek.broker.dispatch.request_limits import charge_bytes_max
from odradek.protocol.codec import SlicedDecoding, decode, decode_charged, encode
from odradek.protocol.errors import ChargeExceeded, Malformed
from tests.fuzz.mutations import damaged
from tests.fuzz.target import Bound, Target
from tests.fuzz.valid import random_struct
from tests.support.messages import ALL_MESSAGES, versions

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.protocol.schema import Message

KINDS = ("Request", "Response")
HEAD_BYTES = 3
SEED = 11
TYPED = (Malformed, ChargeExceeded)
CLASSES = {
    (kind, cls.API_KEY): cls
    for kind, suffix in enumerate(KINDS)
    for name, cls in ALL_MESSAGES.items()
    if name.endswith(suffix) and cls.API_KEY >= 0 and versions(cls)
}


def run(data: bytes) -> int:
    """Decode a request in one piece and in slices, which must agree, or a response as a client does."""
    if len(data) < HEAD_BYTES:
        return 0
    kind, key, version = data[:HEAD_BYTES]
    cls = CLASSES.get((kind, key))
    if cls is None or version not in versions(cls):
        return 0
    body = memoryview(data)[HEAD_BYTES:]
    if KINDS[kind] == "Response":
        decode(cls, version, body)
        return 0
    maximum = charge_bytes_max(key, len(body))
    whole = outcome(lambda: decode_charged(cls, version, body, maximum))
    sliced = outcome(lambda: decode_in_slices(cls, version, body, maximum))
    assert whole == sliced or repr(whole) == repr(sliced), f"{cls.NAME} v{version}: {whole} is not {sliced}"  # NaN
    charge = whole[1]
    return 2 * (charge if isinstance(charge, int) else maximum)


def decode_in_slices(cls: type[Message], version: int, body: memoryview, maximum: int) -> tuple[Any, int]:
    decoding = SlicedDecoding(cls, version, body, maximum)
    while not decoding.run_slice():
        pass
    return decoding.message, decoding.charge


def outcome(decoder: Callable[[], tuple[Any, int]]) -> tuple[Any, Any]:
    """Return the message and its charge, or the type and the text of the typed error."""
    try:
        return decoder()
    except TYPED as error:
        return type(error), str(error)


@cache
def all_versions() -> list[tuple[int, int, int]]:
    return [(kind, key, version) for (kind, key), cls in sorted(CLASSES.items()) for version in versions(cls)]


def generated(kind: int, key: int, version: int, rng: Random) -> bytes:
    """Return the input of a valid message."""
    message = random_struct(CLASSES[kind, key], version, rng)
    return bytes((kind, key, version)) + encode(message, version)


def seeds() -> list[bytes]:
    rng = Random(SEED)
    return [generated(*choice, rng) for choice in all_versions()]


def mutate(data: bytes, rng: Random) -> bytes:
    """Damage the input, or a valid message of a random API and version."""
    if rng.random() < 0.5:
        data = generated(*rng.choice(all_versions()), rng)
    return data[:HEAD_BYTES] + damaged(data[HEAD_BYTES:], rng)


MESSAGES = Target("messages", run, seeds, typed=TYPED, steps=Bound(2_000, 200), mutate=mutate)
