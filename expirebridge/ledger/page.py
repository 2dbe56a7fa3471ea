"""What a ledger adds to the dashboard, if there is one.

This imports without the extra `sql`; the page needs it.
"""

from starlette.routing import BaseRoute, Route

from expirebridge.errors import InvalidSetting
from expirebridge.settings import Settings
from expirebridge.web.capability_pages import CapabilityPages
from expirebridge.web.context import Entry, PageContext
from expirebridge.web.overview import Overview


def _routes(context: PageContext, overview: Overview) -> list[BaseRoute]:
    if context.settings.ledger is None:
        return []
    try:
        from expirebridge.ledger.dashboard_page import LedgerPages  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as missing:
        raise InvalidSetting(str(missing)) from None
    pages = LedgerPages(context)
    overview.ask_too(pages.alarms)
    return [Route("/ledger", pages.ledger, name="ledger")]


def _entry(settings: Settings) -> Entry | None:
    return None if settings.ledger is None else Entry(60, "ledger", "/ledger", "Ledger")


PAGES = CapabilityPages(routes=_routes, entry=_entry)
