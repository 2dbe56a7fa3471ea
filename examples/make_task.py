"""Makes two tasks from Python: one with plain commands, one with expirebridge."""

import os
import sys
import uuid

import redis

from expirebridge import Bridge

url = os.environ.get("EXPIREBRIDGE_URL", "redis://localhost:6379/1")

# A key with a TTL. Its value means nothing.
plain = redis.Redis.from_url(url)
id = str(uuid.uuid4())
key = f'{id}:?mail.send?[42,"hi"]'
plain.set(key, "", ex=60)
plain.pexpire(key, 1500)  # any client may move it, as long as it lives
sys.stdout.write(f"{id}\n")

# All or nothing; with an id of one's own it may be sent again.
with Bridge(url) as bridge:
    task = bridge.make_task("mail.send", [42, "hi"], 0.5, id=f"hello-{id}", if_exists="keep")
    sys.stdout.write(f"{task.id}\n")
