"""The command that signals a task."""

from typing import Annotated, Any

import typer

from expirebridge.bridge import Bridge
from expirebridge.cli.json_arguments import with_advice
from expirebridge.cli.options import AsJson, Url
from expirebridge.cli.tasks import TaskId, report_change
from expirebridge.errors import InvalidTask
from expirebridge.task import signal_payload
from expirebridge.task.task import Change

_NOT_DONE = {
    Change.SIGNALLED_BEFORE: "another signal has decided: expirebridge show {id}",
    Change.RUNNING: "too late: its deadline has decided, and the handler of that has begun",
    Change.BEGUN: "too late: its deadline has decided, and the next attempt is to come",
    Change.FINISHED: "it has ended: expirebridge show {id}",
    Change.NOT_AWAITED: "it was made without --on-signal: it runs one function alone",
    Change.OF_LEDGER: "its row decides: call ledger.signal in a program",
    Change.NOT_FOUND: "{absent}",
    Change.ELSEWHERE: "the tasks are being moved: ask the other database",
}
"""Why a signal did not decide, and what to do."""


def signal(
    id: TaskId,
    payload: Annotated[
        str, typer.Argument(help="JSON of any kind, for the handler: at most 64 KiB.")
    ] = "null",
    by: Annotated[
        str, typer.Option(metavar="WHO", help="Who says so, in at most 200 characters.")
    ] = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Signal a task that waits for it: its other function runs, now.

    The task was made with --on-signal. The same signal again, by the same sender, has the first
    answer.

    Example: expirebridge signal pay-42 '{"ref": 7}' --by psp
    """
    said = _read(payload)
    with Bridge(url) as bridge:
        report_change(bridge, id, bridge.signal(id, said, by=by), _NOT_DONE, as_json=as_json)


def _read(typed: str) -> Any:
    try:
        return signal_payload.read(typed)
    except InvalidTask as error:
        raise with_advice(error, typed, any_value=True) from None
