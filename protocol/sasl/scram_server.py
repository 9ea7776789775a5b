"""Server side of SCRAM.

An unknown user runs the same exchange as a known user: `Decoys` has a credential for each name, which is computed for
known users, too. Both fail at the proof, after the same number of hashes, with the same error message.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from odradek.protocol.sasl.mechanism import AuthenticationFailed, Identity, Reply
from odradek.protocol.sasl.scram import (
    Credential,
    Decoys,
    ScramMechanism,
    attributes,
    decoded,
    encoded,
    text_of,
    user_name,
    xor,
)

_NO_CHANNEL_BINDING: Final = ("n", "y")
_EXTENSION: Final = "tokenauth"


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The client's first message."""

    header: str
    """Channel binding and authorization id (RFC 5802: gs2-header)."""
    bare: str
    """The message without the header."""
    user: str
    nonce: str
    extensions: tuple[str, ...]
    """Attributes after the nonce."""
    authorization: str
    """Authorization id; empty if there is none."""

    @property
    def by_token(self) -> bool:
        """True if the user name is the id of a delegation token."""
        return any(
            name == _EXTENSION and value.lower() == "true"
            for name, _, value in (extension.partition("=") for extension in self.extensions)
        )


@dataclass(frozen=True, slots=True)
class Account:
    """Credential of a user or of a delegation token."""

    credential: Credential
    identity: Identity


AccountOf = Callable[[ClientFirst], Account | None]
"""Return the account that a first message names, or None if there is none."""


def parse_client_first(message: bytes) -> ClientFirst:
    """Return the parts of the client's first message. Raise AuthenticationFailed."""
    text = text_of(message)
    binding, authorization, bare = [*text.split(",", 2), "", ""][:3]
    if binding not in _NO_CHANNEL_BINDING:
        raise AuthenticationFailed("channel binding is not supported")
    if authorization and authorization[:2] != "a=":
        raise AuthenticationFailed("the authorization id is not an attribute a")
    values = attributes(bare, "n", "r")
    if not values["r"]:
        raise AuthenticationFailed("the nonce is empty")
    return ClientFirst(
        header=f"{binding},{authorization},",
        bare=bare,
        user=user_name(values["n"]),
        nonce=values["r"],
        extensions=tuple(bare.split(",")[2:]),
        authorization=user_name(authorization[2:]) if authorization else "",
    )


class ScramServer:
    """Server of one exchange."""

    def __init__(self, mechanism: ScramMechanism, account_of: AccountOf, decoys: Decoys, nonce: str) -> None:
        """Begin an exchange. `nonce` has at least 128 random bits and no comma."""
        self._mechanism = mechanism
        self._account_of = account_of
        self._decoys = decoys
        self._nonce = nonce
        self._step: Callable[[bytes], Reply] = self._receive_first

    def next(self, message: bytes) -> Reply:
        """Return the challenge for the client's first message, and the signature for its proof."""
        step, self._step = self._step, _receive_after_end
        return step(message)

    def _receive_first(self, message: bytes) -> Reply:
        challenge = self._challenge(parse_client_first(message))
        self._step = lambda final: self._receive_final(challenge, text_of(final))
        return Reply(challenge.message)

    def _challenge(self, first: ClientFirst) -> "_Challenge":
        if first.authorization not in ("", first.user):
            raise AuthenticationFailed(
                "the authorization id differs from the user",
                public="Authentication failed: Client requested an authorization id that is different from username",
            )
        # For known users, too: the work must not differ.
        decoy = self._decoys.credential(self._mechanism, first.user, by_token=first.by_token)
        account = self._account_of(first)
        credential = decoy if account is None else account.credential
        nonce = first.nonce + self._nonce
        message = f"r={nonce},s={encoded(credential.salt)},i={credential.iterations}"
        identity = None if account is None else account.identity
        return _Challenge(first.header, nonce, f"{first.bare},{message}", message.encode(), credential, identity)

    def _receive_final(self, challenge: "_Challenge", text: str) -> Reply:
        mechanism, credential = self._mechanism, challenge.credential
        without_proof, separator, proof = text.rpartition(",p=")
        values = attributes(without_proof, "c", "r")
        if not separator or decoded(values["c"]) != challenge.header.encode():
            raise AuthenticationFailed("the channel binding differs from that of the first message")
        if not hmac.compare_digest(values["r"].encode(), challenge.nonce.encode()):
            raise AuthenticationFailed("the nonce differs from that of the first message")
        signed = f"{challenge.signed},{without_proof}".encode()
        signature = mechanism.hmac(credential.stored_key, signed)
        client_key = xor(decoded(proof), signature)
        matches = hmac.compare_digest(mechanism.hash(client_key), credential.stored_key)
        if challenge.identity is None or not matches:
            raise AuthenticationFailed("unknown user" if challenge.identity is None else "the password differs")
        message = f"v={encoded(mechanism.hmac(credential.server_key, signed))}".encode()
        return Reply(message, challenge.identity)


def _receive_after_end(message: bytes) -> Reply:
    raise AuthenticationFailed("the exchange has ended")


@dataclass(frozen=True, slots=True)
class _Challenge:
    """State of an exchange after its first message."""

    header: str
    nonce: str
    signed: str
    """The part of the signed text that is known: both first messages."""
    message: bytes
    credential: Credential
    identity: Identity | None
    """The user. None if it is unknown: no proof is accepted then."""
