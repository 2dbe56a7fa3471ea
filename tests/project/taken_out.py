"""What goes along with a room that is taken out of the package: see `tests/kit/without.py`."""

_BY_HAND = {"testing.clock", "testing.traveller", "testing.unit"}
"""They do what a listener does, for limits, groups and series too."""
GO_ALONG: dict[str, set[str]] = {
    "limits": {"moving", *_BY_HAND},
    "groups": {"moving", *_BY_HAND},
    "series": {"ledger", "moving", *_BY_HAND},
    "moving": {"importing"},
    "ledger": {"contrib", "moving"},
    "urgent": {*_BY_HAND},
}
"""What is taken out together with a room: capabilities that may import it, and parts of frames that
are for it."""
_EXPORTS = {
    "tests/spine/test_large_arguments.py::test_people_see_how_large_they_are_and_files_keep_them",
}
_NAMES_ALL = {
    "tests/spine/test_keywords.py",
    "tests/spine/test_short_reprs.py",
    "tests/spine/test_start_of_producers.py::test_the_first_task_is_made_with_these_modules",
}
USED_IN: dict[str, set[str]] = {
    "moving": _EXPORTS,
    "groups": _EXPORTS
    | _NAMES_ALL
    | {"tests/spine/test_why.py::test_a_follow_up_waits_for_its_group"},
    "series": _EXPORTS | _NAMES_ALL,
    "ledger": _EXPORTS,
    "limits": _EXPORTS
    | _NAMES_ALL
    | {
        "tests/listener/test_embedding.py::"
        "test_a_connection_that_breaks_at_the_first_heartbeat_does_not_end_it"
        "[embedded-declare_limits]",
    },
    "signals": {
        "tests/spine/test_fields.py::test_a_task_has_what_is_shown",
        "tests/spine/test_keywords.py::test_what_others_call_it_is_answered_with_the_name_here",
        "tests/spine/test_rights.py",
        "tests/spine/test_start_of_producers.py::test_the_first_task_is_made_with_these_modules",
    },
    "urgent": {"tests/spine/test_dropped_replies.py"},
    "foreign": {
        "tests/listener/test_processes.py::test_a_log_for_machines_is_json_in_every_line",
    },
}
"""The tests of the spine, or whole modules of them, that use a room without importing it."""
