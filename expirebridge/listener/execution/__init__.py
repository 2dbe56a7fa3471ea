"""Runs attempts: capacity, leases, calling the handler, deadlines, the outcome."""
