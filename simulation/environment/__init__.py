"""Event loop on virtual time, network and disks in memory, clocks, and the trace of a run."""
