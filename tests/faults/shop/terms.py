"""What the shop that sells and the verdict over it agree on."""

ATTEMPTS = 40
"""Of each task: more than the outages of the database cost."""
