"""Small files beside the segments: checkpoints, leader epochs, names, truncation marks."""
