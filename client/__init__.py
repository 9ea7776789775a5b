"""``python -P -m odradek.client``: administration as a client process of its own, answering in JSON.

The command line starts it and shows what it says. It speaks Kafka's protocol like any other client, so it works against
any broker; it is no part of a node.
"""
