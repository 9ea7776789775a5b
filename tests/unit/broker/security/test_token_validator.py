"""Tokens of OAUTHBEARER clients: whatever cannot be verified is refused."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from odradek.broker.security.sasl_settings import TokenRules
from odradek.broker.security.token_validator import KEYS_MAX, TokenValidator, parse_jwks
from odradek.protocol.sasl.mechanism import Identity
from odradek.protocol.sasl.oauthbearer import InvalidToken

NOW_S = 1_800_000_000
RULES = TokenRules(audiences=("odradek", "other"), issuer="https://issuer", clock_skew_s=30)
CLAIMS = {"sub": "alice", "iss": "https://issuer", "aud": "odradek", "iat": NOW_S - 60, "exp": NOW_S + 60}


@cache
def rsa_key(bits: int = 2_048, number: int = 0) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65_537, key_size=bits)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, **fields: str) -> dict[str, Any]:
    algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": "one", **fields}


def document(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def validator(rules: TokenRules = RULES, *keys: dict[str, Any]) -> TokenValidator:
    parsed = parse_jwks(document(*(keys or (jwk(rsa_key()),))))
    return TokenValidator(rules, parsed.keys.get, lambda: NOW_S * 1_000)


def token(key: Any = None, algorithm: str | None = "RS256", key_id: str | None = "one", **claims: Any) -> str:
    merged = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    signing_key: Any = None if algorithm is None else key or rsa_key()
    return jwt.encode(merged, signing_key, algorithm, headers=None if key_id is None else {"kid": key_id})


def test_valid_token_identifies_its_subject_until_its_expiry() -> None:
    assert validator().validate(token()) == Identity("alice", expires_ms=(NOW_S + 60) * 1_000)


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_algorithms_of_rsa_keys_are_accepted(algorithm: str) -> None:
    assert validator().validate(token(algorithm=algorithm)).user == "alice"


def test_key_of_an_elliptic_curve_is_accepted() -> None:
    assert validator(RULES, jwk(ec_key())).validate(token(ec_key(), "ES256")).user == "alice"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": NOW_S - 30}, "expired"),
        ({"exp": None}, "the claim exp is not a time"),
        ({"exp": "tomorrow"}, "the claim exp is not a time"),
        ({"exp": True}, "the claim exp is not a time"),
        ({"exp": 1e300}, "the claim exp is not a time"),
        ({"iat": None}, "the claim iat is not a time"),
        ({"iat": NOW_S + 31}, "issued in the future"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"iss": None}, "issuer"),
        ({"iss": "https://issuer/"}, "issuer"),
        ({"aud": None}, "audience"),
        ({"aud": "another"}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": {"odradek": 1}}, "the claim aud"),
        ({"sub": None}, "the claim sub"),
        ({"sub": " "}, "the claim sub"),
        ({"scope": [""]}, "the claim scope"),
        ({"scope": 5}, "the claim scope"),
    ],
)
def test_token_with_a_wrong_claim_is_refused(claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidToken, match=reason):
        validator().validate(token(**claims))


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW_S - 29},
        {"iat": NOW_S + 29},
        {"nbf": NOW_S + 29},
        {"aud": ["x", "other"]},
        {"scope": "a b"},
        {"scope": ["a"]},
    ],
)
def test_token_within_the_rules_is_accepted(claims: dict[str, Any]) -> None:
    assert validator().validate(token(**claims)).user == "alice"


def test_names_of_claims_are_settings() -> None:
    rules = TokenRules((), None, 0, sub_claim="user", scope_claim="scp")
    claims: dict[str, Any] = {"user": " bob ", "scp": ["x"], "scope": 5, "aud": None, "iss": None}
    assert validator(rules).validate(token(**claims)).user == "bob"


def test_token_with_a_weak_or_missing_signature_is_refused() -> None:
    cases = {
        token(None, None): "algorithm is not supported",
        token(b"k" * 32, "HS256"): "algorithm is not supported",
        token(rsa_key(number=1)): "signature is not valid",
        token(ec_key(), "ES256"): "does not match its key",
        token(key_id="two"): "key is not in the JWKS",
        token(key_id=None): "key is not in the JWKS",
        token()[:-8] + "AAAAAAAA": "signature is not valid",
        token().rpartition(".")[0] + ".": "signature is not valid",
        "a.b.c": "not a signed JWT",
        "": "not a signed JWT",
        "..": "not a signed JWT",
    }
    for text, reason in cases.items():
        with pytest.raises(InvalidToken, match=reason) as failed:
            validator().validate(text)
        assert failed.value.__cause__ is None


def encoded(*parts: bytes) -> str:
    return ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 40_000,
        b'{"alg":' * 8_000,
        b'{"alg":"RS256","kid":"one","x":' + b"9" * 40_000 + b"}",
        b'{"alg":"RS256","kid":"one","crit":["x"],"x":1}',
        b'{"alg":"RS256","kid":"one","b64":false}',
        b'{"alg":"RS256","kid":["one"]}',
        b'{"alg":["RS256"],"kid":"one"}',
        b'{"alg":NaN,"kid":"one"}',
        b'{"alg":"none","alg":"RS256","kid":"one"}',
        b'{"alg":"RS256","kid":"one\\ud800"}',
        b"\xff\xfe",
    ],
)
def test_token_with_an_odd_header_is_refused(header: bytes) -> None:
    with pytest.raises(InvalidToken):
        validator().validate(encoded(header, b"{}", b"signature"))


@pytest.mark.parametrize(
    "payload",
    [
        b"[" * 40_000,
        b'{"exp":' + b"9" * 40_000 + b"}",
        b'{"exp":NaN,"iat":0}',
        b'{"exp":Infinity,"iat":0}',
        b'{"exp":1e999,"iat":0}',
        b'{"exp":-1,"iat":0}',
        b'"text"',
        b"\xff",
    ],
)
def test_signed_token_with_an_odd_payload_is_refused(payload: bytes) -> None:
    signed = jwt.PyJWS().encode(payload, rsa_key(), "RS256", {"kid": "one"})
    with pytest.raises(InvalidToken):
        validator().validate(signed)


def test_key_verifies_its_own_algorithm_alone() -> None:
    limited = validator(RULES, jwk(rsa_key(), alg="PS256"))
    assert limited.validate(token(algorithm="PS256")).user == "alice"
    with pytest.raises(InvalidToken, match="does not match its key"):
        limited.validate(token())


def test_keys_for_encryption_are_skipped() -> None:
    parsed = parse_jwks(document(jwk(rsa_key(), use="enc", kid="enc"), {"kty": "oct", "k": "AAAA"}, jwk(rsa_key())))
    assert (list(parsed.keys), parsed.skipped) == (["one"], ())


def test_unusable_keys_are_skipped_with_their_reasons() -> None:
    unusable = [
        jwk(rsa_key(1_024), kid="short"),
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "curve"},
        {"kty": "RSA", "kid": "broken"},
        jwk(rsa_key(), kid="private", d="AA"),
    ]
    parsed = parse_jwks(document(*unusable, jwk(rsa_key())))
    assert list(parsed.keys) == ["one"]
    assert parsed.skipped == (
        "key 'short' has 1024 bits, less than 2048",
        "key 'curve' has no supported algorithm",
        "key 'broken' cannot be read",
        "key 'private' is a private key; publish public keys alone",
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no array of keys"),
        (b'{"keys": 5}', "no array of keys"),
        (b'{"keys": []}', "no usable public key"),
        (b'{"keys": [{"kty": "oct", "k": "AAAA"}]}', "no usable public key"),
        (b'{"keys": [{"kty": []}, {"kty": {"RSA": 1}}, {"kty": null}]}', "no usable public key"),
        (b'{"keys": [{"kty": "RSA"}]}', "cannot be read"),
        (b'{"keys": [{"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"}]}', "no supported algorithm"),
        (b'{"keys": [{"kty": "RSA", "alg": "RS1", "n": "AA", "e": "AQAB"}]}', "no supported algorithm"),
        (b'{"keys": [{"kty": "RSA", "d": "AA", "n": "AA", "e": "AQAB"}]}', "private key"),
        (document(*[{}] * (KEYS_MAX + 1)), "more than 1000"),
    ],
)
def test_document_without_usable_keys_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_jwks(content)


def test_short_rsa_key_is_refused() -> None:
    with pytest.raises(ValueError, match="1024 bits, less than 2048"):
        parse_jwks(document(jwk(rsa_key(1_024))))
