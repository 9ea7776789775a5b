"""A local cluster: its plan, directory, broker processes, start and stop."""
