#!/bin/sh
# Makes two tasks from a shell: one with plain commands, one by a function.
set -eu
cli() { redis-cli -e -u "${EXPIREBRIDGE_URL:-redis://localhost:6379/1}" "$@"; }

# A key with a TTL. Its value means nothing.
id=$(cat /proc/sys/kernel/random/uuid)
key="$id:?mail.send?[42,\"hi\"]"
cli SET "$key" '' EX 60 >/dev/null
cli PEXPIRE "$key" 1500 >/dev/null # any client may move it, as long as it lives
echo "$id"

# All or nothing; with an id of one's own it may be sent again. The reply: outcome, id, key, due.
cli FCALL expirebridge_make 1 expirebridge mail.send '[42,"hi"]' 500 \
  id "hello-$id" if_exists keep | sed -n 2p
