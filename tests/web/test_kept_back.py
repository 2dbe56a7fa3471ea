"""Pages about tasks say that a ledger with a horizon keeps some back."""

from tests.kit.ledgers import LedgerHarness
from tests.web.serving import Asking


async def test_pages_say_that_rows_are_kept_back(asking: Asking, harness: LedgerHarness) -> None:
    async with asking() as client:
        assert "kept back" not in (await client.get("/task?id=far")).text
        assert "kept back" not in (await client.get("/bulk?tag=shop&action=cancel")).text
        LedgerHarness(
            harness.engine, harness.made, harness.store, place=harness.place, horizon=3600.0
        ).settle_down()
        missing = await client.get("/task?id=far")
        preview = await client.get("/bulk?tag=shop&action=cancel")
    assert missing.status_code == 404
    assert "No task has the id far: it was never made, or has ended and was f" in missing.text
    assert "; or it is due in more than 1h, and its row is kept back in SQL" in missing.text
    assert "Rows of the ledger that are kept back in SQL, since they are due in" in preview.text
