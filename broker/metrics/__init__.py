"""What a node tells Prometheus of itself.

While it works it counts a few integers a request (`requests`, `odradek.broker.partition.traffic`); everything else is looked up when somebody asks
(`scrape`), in steps that let requests in between.
"""
