"""Tables of invariants. Product code asserts them where the state changes; docs/invariants.md lists them."""
