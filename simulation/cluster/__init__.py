"""Hosts of a simulated cluster, and the cluster that applications run against."""
