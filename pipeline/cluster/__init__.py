"""The cluster of the demo: start, topics, lookup of leaders and coordinators."""
