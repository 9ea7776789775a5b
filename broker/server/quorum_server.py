"""The part of the node in the metadata quorum: Raft, the controller, and connections to the other nodes."""

from collections.abc import Mapping, Sequence

from odradek.broker.config.addresses import Voter
from odradek.broker.config.controller import controller_config, controller_response_timeout_ms
from odradek.broker.contexts import NodeContext, QuorumContext
from odradek.broker.process.env import Env
from odradek.broker.quorum.controller_client import ControllerClient
from odradek.broker.quorum.forwarding import Forwarding
from odradek.broker.quorum.metadata_log import follow_metadata
from odradek.broker.quorum.network import make_raft
from odradek.broker.quorum.peers import AddressOf, LoginOf, Peers, TlsOf
from odradek.broker.quorum.suspected_leaders import SuspectedLeaders
from odradek.cluster.controller.service import ControllerService
from odradek.cluster.metadata.image import TRANSACTION_VERSION, ScramKey
from odradek.protocol.sasl.scram import Credential
from odradek.runtime.shard import FailureHandler
from odradek.runtime.tasks import Tasks
from odradek.storage.data_directory.log_manager import LogManager


class QuorumServer:
    """Raft, the controller of this node, and the clients of the active controller. It is passive until `start`."""

    def __init__(
        self,
        node: NodeContext,
        env: Env,
        logs: LogManager,
        *,
        voters: Sequence[Voter],
        address_of: AddressOf,
        tls_of: TlsOf,
        login_of: LoginOf,
        tasks: Tasks,
        on_failure: FailureHandler,
        on_bug: FailureHandler,
        bootstrap_scram: Mapping[ScramKey, Credential],
    ) -> None:
        """Open the metadata log. Raise OSError if that fails.

        `on_failure` is called if the node cannot continue, and `on_bug` for an unexpected exception of one command.
        `bootstrap_scram`: the first SCRAM credentials of a new cluster.
        """
        config = node.config
        self.peers = Peers(config.node_id, address_of, env.clock, tasks, login_of, tls_of)
        voter_ids = [voter.node_id for voter in voters] or [config.node_id]
        network, self.raft = make_raft(config, env, logs, voter_ids, self.peers, tasks=tasks, on_failure=on_failure)
        follow_metadata(self.raft, node.metadata, config, env, tasks, on_failure)
        self.controller = ControllerService(
            self.raft,
            config=controller_config(config, logs.directory.cluster_id),
            configs=node.topic_settings,
            rng=env.rng,
            clock=env.clock,
            tasks=tasks,
            on_failure=on_failure,
            on_bug=on_bug,
            bootstrap_levels={TRANSACTION_VERSION: config.odradek_initial_transaction_version},
            bootstrap_scram=bootstrap_scram,
            published=lambda: node.metadata.image,
        )
        self.forwarding = Forwarding(self._leader_id, self.peers, request_timeout_ms=config.request_timeout_ms)
        self.controller_client = ControllerClient(
            self.controller,
            self._leader_id,
            self.peers,
            self.forwarding,
            request_timeout_ms=config.request_timeout_ms,
            response_timeout_ms=controller_response_timeout_ms(config),
        )
        self.suspected_leaders = SuspectedLeaders(self.peers, node.metadata, env.clock)
        self.context = QuorumContext(raft=self.raft, network=network, controller=self.controller, peers=self.peers)

    async def start(self) -> None:
        """Take part in elections. Raise OSError or BadQuorumState if the file quorum-state cannot be read."""
        await self.raft.start()
        self.context.network.connect(self.raft.step)

    async def stop(self) -> None:
        """Stop the controller and Raft, and close the connections."""
        try:
            self.controller.stop()
            await self.raft.stop()
        finally:
            self.peers.close()

    def _leader_id(self) -> int:
        return self.raft.leader_id
