"""The web console: server-rendered pages about a cluster, read over Kafka's protocol.

It is a process of its own and a client of the cluster, so it serves Odradek and Apache Kafka and never blocks a broker.
`application` makes the ASGI application, `model` reads the cluster without HTML, `pages` has one file per page, and
`web` has sessions, checks of requests, and templates.
"""
