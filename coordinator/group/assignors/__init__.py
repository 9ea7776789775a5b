"""Server-side assignors of consumer groups: range and uniform."""
