"""The Spark jobs of the demo: sessions, transformations, delays."""
