"""What a line of the log says to machines: its event, a name that stays, and fields.

No field, and no line, holds the arguments or the result of a task, nor the words of what a handler
raised: they may be secrets. `docs/operations.md` lists the events.
"""


def event(name: str, **fields: object) -> dict[str, object]:
    """The `extra` of a line of the log."""
    return {"event": name, "fields": fields}
