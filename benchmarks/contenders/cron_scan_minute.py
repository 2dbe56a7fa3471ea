# /// script
# requires-python = ">=3.11"
#
# [tool.lab]
# title = "cron, each minute"
# kind = "design"
# environment = "lab"
# worker = ["python -m benchmarks.contenders.cron_scan", "python -m benchmarks.kit.table"]
# handlers = ["plain"]
# concurrency = "100 threads in each run"
# settings = "as cron, each second; LAB_INTERVAL = 60: a run each minute, which is cron's shortest"
# place = "file"
# interval = 60
# only = ["lateness", "lateness_pending", "crash", "idle"]
# because = "elsewhere the interval does not count"
# variables = { LAB_INTERVAL = "60" }
# redelivery = 60 # TAKEN_FOR
# documentation = ["benchmarks/pages/designs.md", "https://man7.org/linux/man-pages/man5/crontab.5.html"]
# ///
"""A cron job scans a table each minute. LAB_INTERVAL = 3600 would be each hour."""

from benchmarks.contenders.cron_scan import schedule, schedule_many

__all__ = ["schedule", "schedule_many"]
