"""The lead: a claim is sent before a task is due, so that it arrives when the task is due."""

LONGEST = 0.002
"""Seconds, at most."""
GROWTH, LOSS = 1 / 16, 1 / 4
"""How much of a delay the next claim makes up for, and how much of the lead one takes away that
came too early. So about one in ten comes too early."""


class Lead:
    """Learns how long it takes from the end of a sleep until a claim reaches the server: this
    process wakes up, writes the claim and sends it, and the server reads it.

    It decides nothing. A claim that comes too early finds nothing, and is repeated.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def learn(self, delay: float) -> None:
        """Take note that a claim came so many seconds after a task was due; before, if negative."""
        if delay < 0:
            self.seconds -= self.seconds * LOSS
        else:
            self.seconds = min(self.seconds + min(delay, LONGEST) * GROWTH, LONGEST)
