"""The listener: one file for each of its roles, and `listener.py` that wires them."""
