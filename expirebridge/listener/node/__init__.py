"""A node: everything of a listener that belongs to one server."""
