"""Handlers in processes: the pool in the listener, and the program in each process."""
