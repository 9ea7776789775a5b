"""Configurations, client quotas and feature levels on the controller."""
