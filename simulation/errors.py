"""Errors of a simulation that are no findings about the application."""


class Escaped(Exception):
    """Raised if the application uses something outside of the simulation, such as a thread or a real socket."""


class UnsuitableProcess(Exception):
    """Raised if this process cannot repeat a run, because its hash seed is random."""


class UnknownTarget(Exception):
    """Raised if the name of a simulation does not lead to a function."""


class RunFailed(Exception):
    """Raised if a run has no result: the application left the simulation, or the process of the run ended."""
