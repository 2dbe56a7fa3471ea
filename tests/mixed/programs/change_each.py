"""Changes the tasks that make_each.py made to wait, and prints the answers."""

import json

from expirebridge import Bridge

with Bridge() as bridge:
    answers = {
        "reschedule": bridge.reschedule("moved", 0),
        "put_off": bridge.put_off("put-off", "1h"),
        "pause": bridge.pause("paused"),
        "resume": bridge.resume("resumed"),
        "cancel": bridge.cancel("cancelled"),
        "run_now": bridge.run_now("now"),
        "beat": bridge.beat("beaten"),
        "extend": bridge.make_task(
            "acts.take", ["debounced"], "2h", id="debounced", if_exists="extend", max_wait="2h"
        ).outcome,
        "keep": bridge.make_task("acts.take", [], 0, id="put-off", if_exists="keep").outcome,
        "put_off_tag": {str(k): v for k, v in bridge.put_off_tag("t", "1m").items()},
        "cancel_tag": {str(k): v for k, v in bridge.cancel_tag("t").items()},
        "unknown": bridge.cancel("no-such-task"),
        "tag": sorted(task.id for task in bridge.list(tag="t").tasks),
        "paused": sorted(task.id for task in bridge.list(state="paused").tasks),
    }
print(json.dumps(answers))
