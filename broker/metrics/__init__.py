"""Metrics of a node, in the Prometheus text format.

The hot paths update a few integers per request (`odradek.broker.dispatch.request_metrics`,
`odradek.broker.partition.traffic`). A scrape looks up all other values, in steps between which the node serves requests
(`scrape`).
"""
