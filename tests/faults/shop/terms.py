"""What the shop that sells and the verdict over it agree on."""

PROMISE = (
    "nothing is lost and nothing early; an attempt is repeated if Redis lost its outcome before "
    "its row had it, but no effect that was committed with `complete_in`"
)
"""What is promised whatever Redis loses."""
ATTEMPTS = 40
"""Of each task: more than the outages of the database cost."""
