"""Which rooms can be taken out of the package: see `tests/kit/without.py`."""

COME_OUT = {"lateness", "sealing"}
"""The spine's tests pass without each of these."""
USED_IN: dict[str, set[str]] = {}
"""The tests of the spine that use a room without importing it."""
