"""The operations on tasks: each checks its arguments and becomes calls."""
