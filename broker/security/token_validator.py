"""Validation of the tokens (JWT) of OAUTHBEARER clients, as a core: keys, time and settings are arguments.

It refuses each token that it cannot verify. Like Apache Kafka, it needs an expected audience and an expected issuer,
unless the configuration accepts tokens without that check.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt
from jwt.algorithms import get_default_algorithms

from odradek.broker.security.sasl_settings import TokenRules
from odradek.protocol.sasl.mechanism import Identity
from odradek.protocol.sasl.oauthbearer import InvalidToken

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""Signature algorithms with a public key. A token with an HMAC, or without a signature, is refused."""
KEYS_MAX: Final = 1_000
"""Maximum keys of one JWKS document. Providers publish two to five."""
RSA_BITS_MIN: Final = 2_048
"""Minimum bits of an RSA key (RFC 7518, section 3.3)."""
_KEY_ID_CHARACTERS_MAX: Final = 40
"""Maximum characters of a key id in a log event."""
_KEY_TYPES: Final = {"RSA": ("RS", "PS"), "EC": ("ES",)}
"""Prefixes of the algorithms by the type of a key."""
_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """Public key of a provider."""

    key: Any
    algorithms: tuple[str, ...]
    """The algorithms that the key verifies."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of a JWKS document."""

    keys: Mapping[str, VerificationKey]
    """The keys that verify tokens, by their id."""
    skipped: tuple[str, ...] = ()
    """The keys for signatures that are not usable, with the reasons. Keys for other purposes are not among them."""


KeyOf = Callable[[str], VerificationKey | None]
"""Return the key with this id, or None if it is unknown. The empty text stands for a token without a key id."""


class _UnusableKey(Exception):
    """A key for signatures cannot verify tokens. The message has the reason."""


def parse_jwks(document: bytes) -> KeySet:
    """Return the keys of a JWKS document. Raise ValueError if it has no usable one.

    An unusable key makes no other key unusable (RFC 7517, section 5). If it failed the whole document, keys that the
    provider removes would stay trusted, and keys that it adds would stay unknown.
    """
    try:
        parsed = json.loads(document)
    except (ValueError, RecursionError):
        raise ValueError("the JWKS document is not JSON") from None
    entries = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(entries, list):
        raise ValueError("the JWKS document has no array of keys")  # noqa: TRY004  the content of a document
    if len(entries) > KEYS_MAX:
        raise ValueError(f"the JWKS document has {len(entries)} keys, more than {KEYS_MAX}")
    keys: dict[str, VerificationKey] = {}
    skipped: list[str] = []
    for entry in entries:
        if isinstance(entry, dict) and str(entry.get("kty")) in _KEY_TYPES and entry.get("use", "sig") == "sig":
            key_id = entry.get("kid", "")
            if isinstance(key_id, str) and key_id not in keys:
                try:
                    keys[key_id] = _key(entry)
                except _UnusableKey as error:
                    skipped.append(f"key {key_id[:_KEY_ID_CHARACTERS_MAX]!r} {error}")
    if not keys:
        reason = skipped[0] if skipped else "it has none of the types RSA and EC"
        raise ValueError(f"the JWKS document has no usable public key for signatures: {reason}")
    return KeySet(keys, tuple(skipped))


def _key(entry: Mapping[str, Any]) -> VerificationKey:
    """Return a key. Raise _UnusableKey."""
    if "d" in entry:
        raise _UnusableKey("is a private key; publish public keys alone")
    kind = entry["kty"]
    algorithms = tuple(name for name in ALGORITHMS if name.startswith(_KEY_TYPES[kind]))
    if kind == "EC":
        algorithms = tuple(name for name in algorithms if name == _CURVES.get(str(entry.get("crv"))))
    if "alg" in entry:
        algorithms = tuple(name for name in algorithms if name == entry["alg"])
    if not algorithms:
        raise _UnusableKey("has no supported algorithm")
    try:
        key = get_default_algorithms()[algorithms[0]].from_jwk(dict(entry))
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise _UnusableKey("cannot be read") from None
    if kind == "RSA" and key.key_size < RSA_BITS_MIN:
        raise _UnusableKey(f"has {key.key_size} bits, less than {RSA_BITS_MIN}")
    return VerificationKey(key, algorithms)


class TokenValidator:
    """Validate tokens: signature, algorithm, issuer, audience, and the times of issue and expiry."""

    def __init__(self, rules: TokenRules, key_of: KeyOf, now_ms: Callable[[], int]) -> None:
        """`now_ms` returns the wall-clock time."""
        self._rules = rules
        self._key_of = key_of
        self._now_ms = now_ms

    def validate(self, token: str) -> Identity:
        """Return the user of a token, and the end of its validity. Raise InvalidToken."""
        rules = self._rules
        claims = self._verified(token)
        now_s, skew_s = self._now_ms() / 1_000, rules.clock_skew_s
        expiry_s, issued_s = _time(claims, "exp"), _time(claims, "iat")
        if now_s - skew_s >= expiry_s:
            raise InvalidToken("it has expired")
        if issued_s - skew_s > now_s:
            raise InvalidToken("it is issued in the future; compare the clocks of the provider and of this broker")
        if "nbf" in claims and _time(claims, "nbf") - skew_s > now_s:
            raise InvalidToken("it is not valid yet (claim nbf)")
        if rules.issuer is not None and claims.get("iss") != rules.issuer:
            raise InvalidToken("its issuer is not sasl.oauthbearer.expected.issuer")
        if rules.audiences and not set(rules.audiences).intersection(_texts(claims, "aud")):
            raise InvalidToken("its audience is not in sasl.oauthbearer.expected.audience")
        if rules.scope_claim in claims:
            _texts(claims, rules.scope_claim)
        user = claims.get(rules.sub_claim)
        if not isinstance(user, str) or not user.strip():
            raise InvalidToken(f"the claim {rules.sub_claim} is not a text")
        return Identity(user.strip(), expires_ms=int(expiry_s * 1_000))

    def _verified(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token whose signature is valid."""
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            header = {}
        if not header:
            raise InvalidToken("it is not a signed JWT")
        algorithm, key_id = header.get("alg"), header.get("kid", "")
        if algorithm not in ALGORITHMS:
            raise InvalidToken("its signature algorithm is not supported; use RS256, PS256 or ES256")
        key = self._key_of(key_id) if isinstance(key_id, str) else None
        if key is None:
            raise InvalidToken("its key is not in the JWKS document")
        if algorithm not in key.algorithms:
            raise InvalidToken("its signature algorithm does not match its key")
        try:
            return dict(jwt.decode(token, key.key, algorithms=[algorithm], options=_SIGNATURE_ALONE))
        except (jwt.PyJWTError, ValueError):
            pass  # raised below, so that the traceback does not contain the token
        raise InvalidToken("its signature is not valid")


_SIGNATURE_ALONE: Final[Any] = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}
"""PyJWT verifies the signature. `TokenValidator` verifies the claims with the clock of the node."""


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise InvalidToken(f"the claim {name} is not a time")
    return float(value)


def _texts(claims: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the items of a claim that is a text or an array of texts. Raise InvalidToken."""
    value = claims.get(name, ())
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) and item.strip() for item in items):
        raise InvalidToken(f"the claim {name} is not a text or an array of texts")
    return tuple(items)
