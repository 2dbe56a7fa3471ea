# /// script
# requires-python = ">=3.11"
#
# [tool.lab]
# title = "SQL polling loop"
# kind = "design"
# environment = "lab"
# worker = ["python -m benchmarks.contenders.sql_polling", "python -m benchmarks.kit.table"]
# handlers = ["plain"]
# concurrency = "100 threads"
# settings = "the table of cron, each second; one process, which scans it 10 times a second (PAUSE)"
# place = "file"
# only = ["lateness", "lateness_pending", "burst", "crash", "idle", "two_workers"]
# because = "elsewhere it is the same as cron, each second"
# redelivery = 60 # TAKEN_FOR
# documentation = ["benchmarks/pages/designs.md"]
# ///
"""A loop in place of cron: one process scans the table again and again, a tenth of a second apart.

A scan ends when all that it took has run: tasks that last delay the next scan.
"""

import time

from benchmarks.contenders.cron_scan import scan, schedule, schedule_many

__all__ = ["schedule", "schedule_many"]
PAUSE = 0.1

if __name__ == "__main__":
    while True:
        scan()
        time.sleep(PAUSE)
