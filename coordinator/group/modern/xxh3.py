"""XXH3, the 64-bit variant with seed 0 and its default secret (Yann Collet's specification), in plain Python.

A few KB take about a millisecond; callers keep the results.
"""

import struct
from typing import Final

_MASK: Final = (1 << 64) - 1
_P32_1: Final = 0x9E3779B1
_P32_2: Final = 0x85EBCA77
_P32_3: Final = 0xC2B2AE3D
_P64_1: Final = 0x9E3779B185EBCA87
_P64_2: Final = 0xC2B2AE3D27D4EB4F
_P64_3: Final = 0x165667B19E3779F9
_P64_4: Final = 0x85EBCA77C2B2AE63
_P64_5: Final = 0x27D4EB2F165667C5
_PMX_1: Final = 0x165667919E3779F9
_PMX_2: Final = 0x9FB21C651E98DF25

_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE_BYTES: Final = 64
_LANES: Final = 8
_SECRET_STEP_BYTES: Final = 8
_STRIPES_PER_BLOCK: Final = (len(_SECRET) - _STRIPE_BYTES) // _SECRET_STEP_BYTES
_BLOCK_BYTES: Final = _STRIPE_BYTES * _STRIPES_PER_BLOCK
_SMALL_BYTES_MAX: Final = 16
_MEDIUM_BYTES_MAX: Final = 128
_MIDDLE_BYTES_MAX: Final = 240
_LANE_KEYS: Final = [
    struct.unpack_from("<8Q", _SECRET, start) for start in range(0, _STRIPES_PER_BLOCK * _SECRET_STEP_BYTES, 8)
]
_SCRAMBLE_KEYS: Final = struct.unpack_from("<8Q", _SECRET, len(_SECRET) - _STRIPE_BYTES)
_LAST_KEYS: Final = struct.unpack_from("<8Q", _SECRET, len(_SECRET) - _STRIPE_BYTES - 7)


def xxh3_64(data: bytes) -> int:
    """The hash as an unsigned number."""
    length = len(data)
    if length <= _SMALL_BYTES_MAX:
        return _small(data, length)
    if length <= _MEDIUM_BYTES_MAX:
        return _medium(data, length)
    if length <= _MIDDLE_BYTES_MAX:
        return _middle(data, length)
    return _long(data, length)


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _fold(left: int, right: int) -> int:
    product = left * right
    return (product & _MASK) ^ (product >> 64)


def _avalanche(number: int) -> int:
    number ^= number >> 37
    number = number * _PMX_1 & _MASK
    return number ^ number >> 32


def _avalanche_64(number: int) -> int:
    number ^= number >> 33
    number = number * _P64_2 & _MASK
    number ^= number >> 29
    number = number * _P64_3 & _MASK
    return number ^ number >> 32


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & _MASK


def _small(data: bytes, length: int) -> int:
    if length == 0:
        return _avalanche_64(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))
    if length <= 3:
        mixed = data[0] << 16 | data[length >> 1] << 24 | data[length - 1] | length << 8
        return _avalanche_64(mixed ^ _u32(_SECRET, 0) ^ _u32(_SECRET, 4))
    if length <= 8:
        number = _u32(data, length - 4) + (_u32(data, 0) << 32)
        number ^= _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
        number ^= _rotated(number, 49) ^ _rotated(number, 24)
        number = number * _PMX_2 & _MASK
        number ^= (number >> 35) + length
        number = number * _PMX_2 & _MASK
        return number ^ number >> 28
    low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
    high = _u64(data, length - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return _avalanche((length + swapped + high + _fold(low, high)) & _MASK)


def _mixed_16(data: bytes, at: int, key: int) -> int:
    return _fold(_u64(data, at) ^ _u64(_SECRET, key), _u64(data, at + 8) ^ _u64(_SECRET, key + 8))


def _medium(data: bytes, length: int) -> int:
    total = length * _P64_1
    for step in range((length - 1) // 32 + 1):
        total += _mixed_16(data, 16 * step, 32 * step) + _mixed_16(data, length - 16 * (step + 1), 32 * step + 16)
    return _avalanche(total & _MASK)


def _middle(data: bytes, length: int) -> int:
    total = length * _P64_1
    for step in range(8):
        total += _mixed_16(data, 16 * step, 16 * step)
    total = _avalanche(total & _MASK)
    for step in range(8, length // 16):
        total += _mixed_16(data, 16 * step, 16 * (step - 8) + 3)
    total += _mixed_16(data, length - 16, 136 - 17)
    return _avalanche(total & _MASK)


def _long(data: bytes, length: int) -> int:
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    stripes = (length - 1) // _STRIPE_BYTES
    for stripe in range(stripes):
        position = stripe % _STRIPES_PER_BLOCK
        _accumulate(lanes, struct.unpack_from("<8Q", data, stripe * _STRIPE_BYTES), _LANE_KEYS[position])
        if position == _STRIPES_PER_BLOCK - 1 and (stripe + 1) * _STRIPE_BYTES <= length - 1:
            for lane, key in enumerate(_SCRAMBLE_KEYS):
                number = lanes[lane] & _MASK
                lanes[lane] = (number ^ number >> 47 ^ key) * _P32_1 & _MASK
    _accumulate(lanes, struct.unpack_from("<8Q", data, length - _STRIPE_BYTES), _LAST_KEYS)
    total = length * _P64_1 & _MASK
    for pair in range(0, _LANES, 2):
        key = 11 + 8 * pair
        left, right = lanes[pair] & _MASK, lanes[pair + 1] & _MASK
        total += _fold(left ^ _u64(_SECRET, key), right ^ _u64(_SECRET, key + 8))
    return _avalanche(total & _MASK)


def _accumulate(lanes: list[int], values: tuple[int, ...], keys: tuple[int, ...]) -> None:
    """Carries beyond 64 bits are cut off when a block ends: what is added stays small until then."""
    for lane in range(_LANES):
        value = values[lane]
        key = value ^ keys[lane]
        lanes[lane ^ 1] += value
        lanes[lane] += (key & 0xFFFFFFFF) * (key >> 32)
