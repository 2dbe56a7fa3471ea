"""Each test begins with an empty shop."""

import bookshop
import pytest


@pytest.fixture(autouse=True)
def empty_shop() -> None:
    """Forget all orders and mails."""
    bookshop.orders.clear()
    bookshop.mails.clear()
    bookshop.bank = bookshop.Bank()
