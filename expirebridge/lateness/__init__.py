"""Lateness: its causes and objectives, what will come due, and how many listeners that needs."""
