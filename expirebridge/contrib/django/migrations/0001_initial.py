"""Creates the ledger's tables, where EXPIREBRIDGE names a ledger."""

from typing import Any, ClassVar

from django.db import migrations

from expirebridge.contrib.django.ledger_tables import CreateLedger


class Migration(migrations.Migration):
    """The first."""

    initial = True
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar[list[Any]] = [CreateLedger()]
