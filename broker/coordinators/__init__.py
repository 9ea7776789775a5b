"""Transaction and group coordinators on a broker: shard loading, standby caches, marker sending, verification."""
