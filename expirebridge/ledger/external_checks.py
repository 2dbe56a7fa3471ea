"""Gives the checks of a ledger's tables to the doctor and to a probe."""

from expirebridge.checks.finding import Finding
from expirebridge.errors import InvalidSetting
from expirebridge.ledger.calls import read_ledgers
from expirebridge.settings import Settings
from expirebridge.store.partitions import Partitions


def check_external(
    store: Partitions, settings: Settings, max_overdue: float, *, whole: bool
) -> list[Finding]:
    """Check the ledger that the settings name; no finding if they name none.

    `whole` also tries to write, and checks the ledger's series and the keys of rows.
    """
    if settings.ledger is None:
        return []
    try:
        from expirebridge.ledger import table_checks  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as missing:
        raise InvalidSetting(str(missing)) from None

    found = table_checks.check_ledger(
        settings,
        lambda: store.run(read_ledgers(run_ids=True)),
        writes=whole,
        max_overdue=max_overdue,
    )
    if whole:
        found += table_checks.check_ledger_series(settings)
        found += table_checks.check_sealed_rows(settings)
    return found
