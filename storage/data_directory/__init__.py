"""The log directory of a broker: its logs, checkpoints, deleted and stray logs."""
