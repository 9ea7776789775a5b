"""Input of the demo: the flight data, its send times, and the progress topic."""
