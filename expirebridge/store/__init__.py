"""All that touches data in Redis."""
