"""Start and stop of a node: quorum server, registration with the controller, broker server."""
