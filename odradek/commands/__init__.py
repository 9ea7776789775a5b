"""Commands of the command line: one module per command or group of commands, and modules that they share."""
