"""Compare and raise the identities of producers.

A transaction has up to two identities. Its own identity is the one of its batches, and its markers derive from it. The
identity of the client is the one of its requests. They differ in two cases:

- Prepare with TV2, if the epoch of the client is exhausted: the client has a new producer id with epoch 0.
- InitProducerId with KeepPreparedTxn in Ongoing (KIP-939): each such request raises the identity of the client, so that
  it fences the former owner. The identity of the transaction must stay, because its batches are in the partitions.
"""

from collections.abc import Callable

from odradek.coordinator.txn.epochs import is_exhausted, last_client_epoch
from odradek.coordinator.txn.state import ProducerIdentity, Transaction
from odradek.protocol.errors import ErrorCode, Refusal


def raised(identity: ProducerIdentity, take_producer_id: Callable[[], int]) -> ProducerIdentity:
    """Return the next identity of a client: the next epoch, or a new producer id if no epoch is left."""
    if is_exhausted(identity.producer_epoch):
        return ProducerIdentity(take_producer_id(), 0)
    return ProducerIdentity(identity.producer_id, identity.producer_epoch + 1)


def follows(later: ProducerIdentity, earlier: ProducerIdentity) -> bool:
    """Return True if `raised` can return `later` for `earlier`."""
    if later.producer_id == earlier.producer_id:
        return later.producer_epoch == earlier.producer_epoch + 1
    return later.producer_epoch == 0 and is_exhausted(earlier.producer_epoch)


def check_client(txn: Transaction, given: ProducerIdentity) -> None:
    """Check that a request comes from the current client of the transactional id.

    Raises:
        Refusal: INVALID_PRODUCER_ID_MAPPING if neither the client nor the transaction has this producer id;
            PRODUCER_FENCED if the client has another identity.
    """
    client = txn.client_identity
    if given.producer_id not in {client.producer_id, txn.producer_id}:
        raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if given != client:
        raise Refusal(ErrorCode.PRODUCER_FENCED)


def had_last_epoch(txn: Transaction, given: ProducerIdentity) -> bool:
    """Return True if `given` is the identity from which the client has received its producer id with epoch 0."""
    return given == (txn.prev_producer_id, last_client_epoch()) and txn.client_identity.producer_epoch == 0
