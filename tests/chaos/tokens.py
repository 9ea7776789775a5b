"""The OAuth provider of a run: its signing keys, its JWKS document, and the token file of its clients."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from odradek.private_files import replace_private

if TYPE_CHECKING:
    from pathlib import Path

ISSUER, AUDIENCE = "https://login.chaos.example", "chaos"
TOKEN_SECONDS: Final = 20
"""Lifetime of a token of a client, in seconds. A session ends with it, so clients log in several times in a run."""
JWKS_REFRESH_MS: Final = 2_000
"""Time between two reads of the JWKS document by a broker, in milliseconds."""


@dataclass(frozen=True)
class SigningKey:
    """Key of the provider, with its id in the JWKS document."""

    key_id: str
    private: ec.EllipticCurvePrivateKey = field(repr=False)

    def public(self) -> dict[str, Any]:
        """Return the entry of the JWKS document."""
        return ECAlgorithm.to_jwk(self.private.public_key(), as_dict=True) | {"kid": self.key_id, "use": "sig"}

    def token(self, user: str, seconds: int = TOKEN_SECONDS) -> str:
        """Return a token of a user that is valid for `seconds`."""
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": now, "exp": now + seconds}
        return jwt.encode(claims, self.private, "ES256", headers={"kid": self.key_id})


@dataclass
class TokenProvider:
    """Provider whose files are in `directory`. `user` is the user of its tokens."""

    directory: Path
    user: str
    _published: list[SigningKey] = field(default_factory=list)
    _made: int = 0

    @property
    def jwks(self) -> Path:
        """File with the JWKS document, which brokers read."""
        return self.directory / "jwks.json"

    @property
    def token_file(self) -> Path:
        """File with the current token, which clients read at each login."""
        return self.directory / "token.jwt"

    @property
    def signing(self) -> SigningKey:
        """The key that signs the tokens of clients: the first one in the document."""
        return self._published[0]

    def prepare(self) -> None:
        """Write the document with one key, and the first token."""
        self.add_key()
        self.renew()

    def add_key(self) -> SigningKey:
        """Publish another key. It signs tokens after `sign_with`."""
        self._made += 1
        key = SigningKey(f"key-{self._made}", ec.generate_private_key(ec.SECP256R1()))
        self._published.append(key)
        self._publish()
        return key

    def sign_with(self, key: SigningKey) -> None:
        """Sign the tokens of clients with `key` from now on."""
        self._published.sort(key=lambda other: other is not key)
        self.renew()

    def retire(self) -> None:
        """Remove all keys from the document except the one that signs."""
        del self._published[1:]
        self._publish()

    def renew(self) -> None:
        """Replace the token file by a new token."""
        replace_private(self.token_file, self.signing.token(self.user))

    def _publish(self) -> None:
        replace_private(self.jwks, json.dumps({"keys": [key.public() for key in self._published]}))
