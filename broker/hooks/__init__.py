"""Fault injection into a broker that was started for tests.

`odradek.broker.__main__` imports this package only with the option `--test-hooks`, whose value is an inherited socket.
No property and no environment variable has this effect.
"""
