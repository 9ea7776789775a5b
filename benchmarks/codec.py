"""python -m benchmarks.codec: compare the codec with kio's in alternating rounds. Exit code 1 if a target was missed.

The table shows medians over the rounds. A ratio compares two consecutive rounds, so that a busy machine slows both
codecs.
"""

from __future__ import annotations

import gc
import io
import statistics
import sys
from dataclasses import dataclass
from datetime import timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.produce.v9 import request as kio_request
from kio.schema.produce.v9 import response as kio_response
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta, i64
from rich.console import Console
from rich.table import Table

from odradek.protocol.batch import build_batch
from odradek.protocol.codec import decode, encode, encode_response
from odradek.protocol.connection import ServerConnection
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION: Final = 9
ROUNDS: Final = 15
CALLS_PER_ROUND: Final = 3_000
RECORD_VALUE_BYTES: Final = 950  # a batch with one such record has about 1 KB
ENCODE_RATIO_MAX: Final = 0.4
DECODE_RATIO_MAX: Final = 10.0
REQUEST_MICROSECONDS_TARGET: Final = 10.0

RECORDS: Final = build_batch(
    [(b"key", b"v" * RECORD_VALUE_BYTES, 1_700_000_000_000, ())], producer_id=1, producer_epoch=0, base_sequence=0
)


@dataclass(frozen=True, slots=True)
class Row:
    operation: str
    ours: float  # median microseconds per call
    theirs: float | None
    ratio: float | None
    bound: str
    met: bool


def request() -> ProduceRequest:
    return ProduceRequest(
        None, -1, 30_000, [TopicProduceData("flights", partition_data=[PartitionProduceData(0, RECORDS)])]
    )


def response() -> ProduceResponse:
    partition = PartitionProduceResponse(0, 0, 123_456, -1, 0)
    return ProduceResponse([TopicProduceResponse("flights", partition_responses=[partition])])


def kio_produce_response() -> kio_response.ProduceResponse:
    partition = kio_response.PartitionProduceResponse(
        index=i32(0),
        error_code=KioErrorCode.none,
        base_offset=i64(123_456),
        log_append_time=None,
        log_start_offset=i64(0),
        record_errors=(),
        error_message=None,
    )
    topic = kio_response.TopicProduceResponse(name=TopicName("flights"), partition_responses=(partition,))
    return kio_response.ProduceResponse(responses=(topic,), throttle_time=i32Timedelta.parse(timedelta(0)))


def one_round(call: Callable[[], object]) -> float:
    """Call the function CALLS_PER_ROUND times. Return the microseconds per call."""
    started = perf_counter()
    for _ in range(CALLS_PER_ROUND):
        call()
    return (perf_counter() - started) / CALLS_PER_ROUND * 1e6


def compare(operation: str, ours: Callable[[], object], theirs: Callable[[], object], ratio_max: float) -> Row:
    pairs = [(one_round(ours), one_round(theirs)) for _ in range(ROUNDS)]
    ratio = statistics.median(mine / other for mine, other in pairs)
    mine, other = (statistics.median(times) for times in zip(*pairs, strict=True))
    return Row(operation, mine, other, ratio, f"<= {ratio_max:g}x", ratio <= ratio_max)


def encode_row() -> Row:
    mine, other = response(), kio_produce_response()
    write = entity_writer(kio_response.ProduceResponse)

    def kio_encode() -> bytes:
        buffer = io.BytesIO()
        write(buffer, other)
        return buffer.getvalue()

    assert encode(mine, VERSION) == kio_encode()
    return compare(
        "encode a Produce v9 response; kio's writer (Python)",
        lambda: encode(mine, VERSION),
        kio_encode,
        ENCODE_RATIO_MAX,
    )


def decode_row() -> Row:
    data = encode(request(), VERSION)
    read = entity_reader(kio_request.ProduceRequest)
    assert read(data, 0)[0].topic_data[0].partition_data[0].records == RECORDS
    view = memoryview(data)  # a connection also passes a view
    return compare(
        f"decode a Produce v9 request of {len(data)} bytes; kio's reader (native)",
        lambda: decode(ProduceRequest, VERSION, view),
        lambda: read(data, 0),
        DECODE_RATIO_MAX,
    )


def connection_row() -> Row:
    """Measure the whole work of `protocol` for one request: framing, header, decoding, encoding, response order."""
    header = bytes.fromhex("00000009000000070008") + b"producer" + b"\x00"
    body = encode(request(), VERSION)
    frame = (len(header) + len(body)).to_bytes(4, "big") + header + body
    reply = response()
    connection = ServerConnection(request_bytes_max=1_048_576)

    def serve() -> None:
        buffer = connection.get_buffer(-1)
        buffer[: len(frame)] = frame
        connection.buffer_updated(len(frame))
        taken = connection.next_request()
        assert taken is not None
        decode(ProduceRequest, taken.api_version, taken.body)
        connection.send_response(taken.seq, encode_response(0, taken.api_version, taken.correlation_id, reply))
        connection.data_to_send()

    median = statistics.median(one_round(serve) for _ in range(ROUNDS))
    return Row(
        "complete Produce v9 request and response",
        median,
        None,
        None,
        f"target {REQUEST_MICROSECONDS_TARGET:g} us",
        True,
    )


def main() -> int:
    gc.collect()
    gc.freeze()
    rows = [encode_row(), decode_row(), connection_row()]
    table = Table(title=f"Codec: medians of {ROUNDS} rounds of {CALLS_PER_ROUND:,} calls")
    table.add_column("operation")
    for column in ("Odradek us", "kio us", "ratio", "target", ""):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.operation,
            f"{row.ours:.2f}",
            "" if row.theirs is None else f"{row.theirs:.2f}",
            "" if row.ratio is None else f"{row.ratio:.2f}x",
            row.bound,
            "" if row.ratio is None else "met" if row.met else "MISSED",
        )
    Console(width=120).print(table)
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
