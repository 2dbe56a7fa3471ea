# /// script
# requires-python = ">=3.11"
#
# [tool.lab]
# title = "ring in memory, of minutes"
# kind = "design"
# environment = "lab"
# worker = ["python -m benchmarks.contenders.ring_memory"]
# handlers = ["async"]
# settings = "as the ring in memory; LAB_SLOTS = 1440, LAB_TICK = 60: a day of minutes"
# place = "worker"
# interval = 60
# only = ["lateness", "lateness_pending", "idle"]
# because = "elsewhere the ring's size does not count"
# variables = { LAB_SLOTS = "1440", LAB_TICK = "60" }
# redelivery = 0 # none
# documentation = ["benchmarks/pages/designs.md"]
# ///
"""A ring of 1,440 slots, one for each minute of a day."""

from benchmarks.kit.service import schedule, schedule_many

__all__ = ["schedule", "schedule_many"]
