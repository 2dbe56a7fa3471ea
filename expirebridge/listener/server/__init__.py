"""One Redis server as a listener uses it, or all nodes of a cluster."""
