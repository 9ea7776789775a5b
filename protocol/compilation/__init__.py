"""Encoders and decoders that are compiled from the field tables of messages, and the charges for decoded elements."""
