"""What programs read in a line of the log: its event, a name that does not change, and fields.

No field and no line holds the arguments or the result of a task, or the text of an exception that
a handler raised: they may be secrets. `docs/operations.md` lists the events.
"""


def event(name: str, **fields: object) -> dict[str, object]:
    """The `extra` of a line of the log."""
    return {"event": name, "fields": fields}
