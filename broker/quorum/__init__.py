"""The metadata quorum on a node: Raft storage, messages and snapshots, requests to the controller, failure detector."""
