"""From a URL to connections: clients for one server, Sentinel or a cluster, and the primary."""
