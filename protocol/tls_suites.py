"""Cipher suites of TLS by their IANA names, as Kafka's property `ssl.cipher.suites` has them."""

from __future__ import annotations

from ssl import TLSVersion
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ssl import SSLContext

CIPHER_SUITES: Final = "ssl.cipher.suites"
_SUITES_1_3: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")


class SuitesUnusable(ValueError):
    """Error of cipher suites that cannot be enabled. The message names the property and what to do."""


def set_suites(context: SSLContext, suites: Sequence[str], versions: Sequence[TLSVersion]) -> list[TLSVersion]:
    """Set the cipher suites of a context, and return those of `versions` for which there is one.

    Raise SuitesUnusable if a suite is unknown. Raise it also for a part of the suites of TLS 1.3: Python can enable
    them only together.
    """
    known = {cipher["name"] for cipher in context.get_ciphers()}
    names = {suite: _library_name(suite) for suite in suites if suite not in _SUITES_1_3}
    for suite, name in names.items():
        if name not in known:
            raise SuitesUnusable(f"{CIPHER_SUITES}: {suite} is unknown or insecure; write its IANA name")
    of_1_3 = [suite for suite in _SUITES_1_3 if suite in suites]
    if TLSVersion.TLSv1_3 in versions and of_1_3 and len(of_1_3) < len(_SUITES_1_3):
        missing = ", ".join(suite for suite in _SUITES_1_3 if suite not in suites)
        raise SuitesUnusable(f"{CIPHER_SUITES}: add {missing}; the suites of TLS 1.3 can only be enabled together")
    if names:
        context.set_ciphers(":".join(names.values()))
    usable = {TLSVersion.TLSv1_2: bool(names), TLSVersion.TLSv1_3: bool(of_1_3)}
    return [version for version in versions if usable[version]]


def _library_name(suite: str) -> str:
    """Return OpenSSL's name of a cipher suite of TLS 1.2, given its IANA name."""
    name = suite.removeprefix("TLS_").replace("_WITH_", "_").removeprefix("RSA_").replace("AES_", "AES")
    name = name.replace("_CBC_", "_").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return name.replace("_", "-")
