"""Client connections: listeners, frames, request order, deadlines, limits and throttling."""
