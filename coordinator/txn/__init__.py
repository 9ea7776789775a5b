"""The transaction coordinator: producer ids, transaction states, markers, time-outs."""
