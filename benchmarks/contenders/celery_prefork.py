# /// script
# requires-python = ">=3.11"
# dependencies = ["celery[redis]==5.7.0", "hiredis==3.5.0"]
#
# [tool.lab]
# title = "Celery (prefork)"
# kind = "peer"
# worker = ["celery --app benchmarks.contenders.celery worker --loglevel WARNING"]
# handlers = ["plain"]
# concurrency = "its default: a process for each core, with one task each"
# settings = "as Celery, with its default pool"
# redelivery = 0 # the visibility timeout, which is longer than any ETA
# documentation = ["https://docs.celeryq.dev/en/stable/userguide/workers.html#concurrency"]
# ///
"""Celery with processes, which use all cores, in place of threads."""

from benchmarks.contenders.celery import schedule

__all__ = ["schedule"]
