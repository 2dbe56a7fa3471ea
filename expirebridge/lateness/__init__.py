"""Lateness: what was late after a gap, what will come due, and how many listeners that needs."""
