-- flags: allow-oom
-- Records the outcomes of attempts, each fenced by the token of its claim.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 ms to keep a succeeded task, 3 ms to keep a failed one, then for each
--          attempt: '<id> <token> <outcome> <delay in ms>', text
--          outcomes: 'succeeded' (text: the result), 'retry' and 'failed' (text: the error),
--          'released' (uncounted; due as before, or after the delay; text: why),
--          'unknown' (the same, and failed when no listener has known the function for 24 h)
-- returns  a code for each attempt: 1 done, 2 refused
--
-- A task that was set, or rescheduled, while its handler ran waits for that time with fresh
-- attempts, whatever the outcome was. A cancelled one is not attempted again. A resend of what was
-- settled is answered as done.
--
-- A client's time depends most on the number of arguments: there are two for each attempt.

-- include names
-- include clock
-- include records
-- include places
-- include waits
-- include history
-- include rearm
-- include tally

local keep_succeeded, keep_failed = tonumber(ARGV[2]), tonumber(ARGV[3])
local DONE, REFUSED = 1, 2
local UNKNOWN_LIMIT = 86400000

local function wait_again(id, record, how, due, text, counted)
  note_attempt(id, how, text)
  local fields = { 'error', text }
  if not counted then
    fields[3], fields[4] = 'attempt', math.max((tonumber(record.attempt) or 1) - 1, 0)
  end
  redis.call('HSET', record_key(id), unpack(fields))
  wait_until(id, record, due)
  -- Last, so that a resend is not answered as done unless it was.
  redis.call('HSET', record_key(id), 'settled', record.token)
  redis.call('HDEL', record_key(id), 'token')
end

local OUTCOMES = {
  succeeded = function(id, record, _, text)
    redis.call('HDEL', record_key(id), 'error', 'lapses', 'unknown')
    finish(id, record, 'succeeded', keep_succeeded, 'result', text)
  end,
  failed = function(id, record, _, text)
    finish(id, record, 'failed', keep_failed, 'error', text)
  end,
  cancelled = function(id, record, _, text)
    finish(id, record, 'cancelled', keep_succeeded, 'error', text)
  end,
  retry = function(id, record, delay, text)
    redis.call('HDEL', record_key(id), 'lapses', 'unknown')
    wait_again(id, record, 'retry', now + delay, text, true)
  end,
  released = function(id, record, delay, text)
    local due = delay > 0 and now + delay or tonumber(record.due) or now
    wait_again(id, record, 'released', due, text, false)
  end,
}
OUTCOMES.unknown = function(id, record, delay, text)
  local since = tonumber(record.unknown) or now
  if now - since >= UNKNOWN_LIMIT then return OUTCOMES.failed(id, record, delay, text) end
  redis.call('HSET', record_key(id), 'unknown', since)
  wait_again(id, record, 'unknown', now + delay, text, false)
end

local function settle(id, token, outcome, delay, text)
  local record = read(id, { 'token', 'settled', 'attempt', 'due', 'unknown', 'rearm', 'next', 'cancel',
    'started' })
  if not record then return REFUSED end
  if record.state == 'running' and record.token == token then
    tally(record, outcome)
    if rearm(id, record) then return DONE end
    if record.cancel and not FINISHED[outcome] then outcome = 'cancelled' end
    OUTCOMES[outcome](id, record, delay, text)
    return DONE
  end
  if record.settled == token or (record.token == token and FINISHED[record.state]) then return DONE end
  return REFUSED
end

return ring_after(function()
  local reply = {}
  for at = 4, #ARGV, 2 do
    local id, token, outcome, delay = string.match(ARGV[at], '^(%S+) (%S+) (%S+) (%S+)$')
    reply[#reply + 1] = settle(id, token, outcome, tonumber(delay), ARGV[at + 1])
  end
  write_tally()
  return reply
end)
