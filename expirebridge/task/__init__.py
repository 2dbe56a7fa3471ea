"""A task: what it is, making it, and the operations and calls about it."""
