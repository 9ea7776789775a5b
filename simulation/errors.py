"""Errors of a simulation that are no findings about the application."""


class Escaped(Exception):
    """Raised if the application uses something outside of the simulation, such as a thread or a real socket."""


class UnsuitableProcess(Exception):
    """Raised if this process cannot repeat a run, because its hash seed is random."""
