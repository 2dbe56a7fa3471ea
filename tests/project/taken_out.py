"""Which rooms can be taken out of the package: see `tests/kit/without.py`."""

COME_OUT = {"foreign", "lateness", "sealing"}
"""The spine's tests pass without each of these."""
_BY_HAND = {"testing.clock", "testing.traveller", "testing.unit"}
"""They do what a listener does, for limits, groups and series too."""
GO_ALONG: dict[str, set[str]] = {
    "limits": {"moving", *_BY_HAND},
    "groups": {"moving", *_BY_HAND},
    "series": {"ledger", "moving", *_BY_HAND},
    "moving": {"importing"},
    "ledger": {"contrib"},
}
"""What is taken out together with a room: capabilities that may import it, and parts of frames that
are for it."""
USED_IN: dict[str, set[str]] = {
    "foreign": {
        "tests/listener/test_processes.py::test_a_log_for_machines_is_json_in_every_line",
    },
}
"""The tests of the spine that use a room without importing it."""
