"""What every action of a person goes through: its form, and the record of who did it."""

import logging
from collections.abc import Awaitable, Mapping
from urllib.parse import parse_qsl

from starlette.requests import Request

from expirebridge.errors import InvalidTask, ServerError
from expirebridge.model.log_fields import event
from expirebridge.model.task import Change
from expirebridge.store import commands
from expirebridge.web.context import Site

logger = logging.getLogger("expirebridge")

READ_ONLY = "This dashboard is read only."
_MAX_FORM = 16 * 1024


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a small form. Raises InvalidTask if this is not one."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_FORM:
            raise InvalidTask("the form is too large")
    try:
        return dict(parse_qsl(body.decode(), max_num_fields=20, errors="strict"))
    except ValueError:
        raise InvalidTask("this is not a form") from None


async def carry_out(
    site: Site, request: Request, action: str, target: str, work: Awaitable[Mapping[Change, int]]
) -> Mapping[Change, int]:
    """Do the work of an action, and record it with its result, also if it fails midway."""
    who, result = str(request.state.who), "failed midway"
    try:
        changes = await work
        result = ", ".join(f"{n:,} {change}" for change, n in changes.items()) or "nothing to do"
    finally:
        logger.warning(
            "%s: %s on %s: %s", who, action, target, result,
            extra=event("action", who=who, action=action, target=target, result=result),
        )  # fmt: skip
        await _note(site, who, action, target, result)
    return changes


async def _note(site: Site, who: str, action: str, target: str, result: str) -> None:
    """Record the action. If that fails, it is still done, and in the log."""
    try:
        await site.store.run(
            commands.note_action(who=who, action=action, target=target, result=result)
        )
    except ServerError as failure:
        logger.warning(
            "an action could not be recorded: %s",
            failure,
            extra=event("unnoted", error=failure),
        )
