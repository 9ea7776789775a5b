"""Authorization on a broker: ACL checks and authorized operations in responses."""
