"""Models without tables: what the admin shows, and who may see and change it."""

from typing import Any, ClassVar

from django.db import models


class NoRows(models.Manager):
    """Finds nothing and asks no database: `dumpdata` looks at each model."""

    def get_queryset(self) -> Any:
        """An empty query."""
        return super().get_queryset().none()


class RedisTask(models.Model):
    """A task in Redis."""

    id: Any = models.CharField(primary_key=True, max_length=128)
    objects = NoRows()

    class Meta:
        """It has no table."""

        managed = False
        base_manager_name = "objects"
        default_permissions: ClassVar[tuple[str, ...]] = ("view", "change")
        verbose_name = "task"

    def __str__(self) -> str:
        return str(self.id)


class RedisSeries(models.Model):
    """A series in Redis."""

    id: Any = models.CharField(primary_key=True, max_length=128)
    objects = NoRows()

    class Meta:
        """It has no table."""

        managed = False
        base_manager_name = "objects"
        default_permissions: ClassVar[tuple[str, ...]] = ("view",)
        verbose_name = "series"
        verbose_name_plural = "series"

    def __str__(self) -> str:
        return str(self.id)
