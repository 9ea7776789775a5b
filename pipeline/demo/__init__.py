"""The demo program: main job, screen, plot, and verification of the results."""
