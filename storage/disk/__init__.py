"""The disk port, and its implementation for the operating system."""
