"""Creates the ledger's tables, where EXPIREBRIDGE names a ledger; models have no tables."""

from typing import Any, ClassVar

from django.db import migrations, models

from expirebridge.contrib.django.ledger_tables import CreateLedger


def _without_table(name: str, options: dict[str, Any]) -> Any:
    return migrations.CreateModel(
        name=name,
        fields=[("id", models.CharField(max_length=128, primary_key=True, serialize=False))],
        options={"managed": False, "base_manager_name": "objects", **options},
    )


class Migration(migrations.Migration):
    """The first."""

    initial = True
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar[list[Any]] = [
        _without_table(
            "RedisTask", {"verbose_name": "task", "default_permissions": ("view", "change")}
        ),
        _without_table(
            "RedisSeries",
            {
                "verbose_name": "series", "verbose_name_plural": "series",
                "default_permissions": ("view",),
            },
        ),
        CreateLedger(),
    ]  # fmt: skip
