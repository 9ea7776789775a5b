"""A broker process: network, request handlers, partitions, quotas, metrics, and the node that connects them."""
