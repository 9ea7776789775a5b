"""The transaction coordinator's way to the leaders of the partitions it ends transactions on."""

from asyncio import Future, get_running_loop
from collections.abc import Sequence

from broker.marker_writer import MarkerWriter
from coordinator.txn.ports import Marker, MarkerResults


class LocalMarkerSender:
    """Markers for partitions led by this broker: appended on the spot, no request, no network.

    The coordinator groups its markers by leader and has one request in flight per broker, so a sender for remote brokers
    takes its place beside this one under the same port.
    """

    def __init__(self, node_id: int, writer: MarkerWriter) -> None:
        self._node_id = node_id
        self._writer = writer

    def write_markers(self, broker_id: int, markers: Sequence[Marker]) -> Future[MarkerResults]:
        """As `coordinator.txn.ports.MarkerSender`. A broker that is not this one cannot be reached: OSError."""
        if broker_id == self._node_id:
            return self._writer.write(markers)
        unreachable: Future[MarkerResults] = get_running_loop().create_future()
        unreachable.set_exception(ConnectionError(f"broker {broker_id} is not reachable from broker {self._node_id}"))
        return unreachable
