"""Which rooms can be taken out of the package: see `tests/kit/without.py`."""

COME_OUT = {"foreign", "lateness", "sealing"}
"""The spine's tests pass without each of these."""
USED_IN: dict[str, set[str]] = {
    "foreign": {
        "tests/listener/test_processes.py::test_a_log_for_machines_is_json_in_every_line",
    },
}
"""The tests of the spine that use a room without importing it."""
