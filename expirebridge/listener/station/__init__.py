"""A station: everything of a listener that belongs to one partition, the keys of one prefix."""
