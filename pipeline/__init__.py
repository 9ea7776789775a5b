"""The flight-delay demo: a producer, two Spark jobs, and faults, on a local cluster."""
