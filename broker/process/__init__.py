"""The environment of a broker process: environment variables, clocks, logging, profiler."""
