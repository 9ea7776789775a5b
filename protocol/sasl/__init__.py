"""SASL mechanisms as cores: no IO, no clock, no random generator."""
