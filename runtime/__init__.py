"""The engine of replicated shards, and the base of state machines, timers, tasks and requests."""
