-- flags: allow-oom
-- Records the outcomes of attempts, each fenced by the token of its claim.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 ms to keep a succeeded task, 3 ms to keep a failed one, 4 fingerprint of the
--          listener's code, or '', 5 how many tasks it claims next without being told, then for each attempt:
--          '<id> <token> <outcome> <delay in ms>', text; and where there is one, '-' for none before:
--          ' <rate> <by how many ms it began late> <cause> <objective>': the last is + if it was kept, or -, and ms
--          outcomes: 'succeeded' (text: the result), 'retry' and 'failed' (text: the error),
--          'snoozed' (uncounted; due after the delay; text: why),
--          'busy' (the same; a fifth word is the name of a rate, in whose lane nothing starts before then),
--          'released' (uncounted; due as before, or after the delay; text: why),
--          'unknown' (the same, and failed when no listener has had the function for 24 h),
--          'unfit' (failed: the arguments do not fit the function)
-- returns  a code for each attempt: 1 done, 2 refused, 3 left to others instead of failed, 4 failed
--          instead of a retry: the next tick of its series is due by then; and last, 5 if slots were freed and
--          granted to tasks that this listener is to claim
--
-- An unknown or unfit task is left to other listeners if another code of the fleet, which has not refused the task,
-- has the function, with another signature if both have it: it is due as before, uncounted.
--
-- A task that was set, or rescheduled, while its handler ran waits for that time with fresh
-- attempts, whatever the outcome was. A cancelled one is not attempted again. A resend of what was
-- settled is answered as done.
--
-- A client's time depends most on the number of arguments: there are two for each attempt.

-- include names
-- include clock
-- include records
-- include state_sets
-- include history
-- include fleet
-- include doorbell
-- include rearm
-- include tick_claims
-- include tally
-- include lanes
-- include limits
-- include format
-- include grants
-- include lane_names

local keep_succeeded, keep_failed, mine = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local DONE, REFUSED, LEFT, OVER, GRANTED = 1, 2, 3, 4, 5
local FIELDS = { 'token', 'settled', 'attempt', 'due', 'unknown', 'rearm', 'next', 'cancel', 'started',
  'error', 'lapses', 'unfit' }
if uses_limits then FIELDS[#FIELDS + 1], FIELDS[#FIELDS + 2] = 'waited', 'slots' end

local function wait_again(id, record, how, due, text, counted)
  if uses_limits and how ~= 'released' then leave_lanes(id, 'ordered') end
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

-- Succeeded tasks, with their results: they are written together. One command for many costs far less than one for
-- each.
local succeeded = {}

local function write_succeeded()
  if not succeeded[1] then return end
  local ids, places = {}, {}
  local keep_until, ended = string.format('%.0f', now + keep_succeeded), string.format('%.0f', now)
  for i, task in ipairs(succeeded) do
    ids[i], places[2 * i - 1], places[2 * i] = task[1], keep_until, task[1]
  end
  -- The destination first and the source last, as `move` does for one.
  redis.call('ZADD', state_set('succeeded'), unpack(places))
  for _, task in ipairs(succeeded) do
    if task[2] == '' then
      redis.call('HSET', record_key(task[1]), 'state', 'succeeded', 'ended', ended)
    else
      redis.call('HSET', record_key(task[1]), 'state', 'succeeded', 'ended', ended, 'result', task[2])
    end
  end
  redis.call('ZREM', state_set('running'), unpack(ids))
  if uses_limits then free_slots(succeeded) end
end

local OUTCOMES = {
  succeeded = function(id, record, _, text)
    if record.error or record.lapses or record.unknown or record.unfit then
      redis.call('HDEL', record_key(id), 'error', 'lapses', 'unknown', 'unfit')
    end
    if record.ledger then return finish(id, record, 'succeeded', keep_succeeded, 'result', text) end
    if string.find(id, '@', 1, true) then note_end_of_tick(id, 'succeeded') end
    succeeded[#succeeded + 1] = { id, text, record.slots }
  end,
  failed = function(id, record, _, text)
    finish(id, record, 'failed', keep_failed, 'error', text)
  end,
  cancelled = function(id, record, _, text)
    finish(id, record, 'cancelled', keep_succeeded, 'error', text)
  end,
  retry = function(id, record, delay, text)
    if string.find(id, '@', 1, true) and is_last_attempt(id, now + delay) then
      finish(id, record, 'failed', keep_failed, 'error', text)
      return OVER
    end
    redis.call('HDEL', record_key(id), 'lapses', 'unknown', 'unfit')
    wait_again(id, record, 'retry', now + delay, text, true)
  end,
  snoozed = function(id, record, delay, text)
    local times = tonumber(redis.call('HGET', record_key(id), 'snoozes')) or 0
    redis.call('HSET', record_key(id), 'snoozes', times + 1)
    redis.call('HDEL', record_key(id), 'lapses', 'unknown', 'unfit')
    wait_again(id, record, 'snoozed', now + delay, text, false)
  end,
  released = function(id, record, delay, text)
    local due = delay > 0 and now + delay or number_up_to(2 ^ 53, record.due) or now
    wait_again(id, record, 'released', due, text, false)
  end,
}
-- A task that this code cannot run is left to others that can.
OUTCOMES.unknown = function(id, record, delay, text, outcome)
  local refused = redis.call('HGET', record_key(id), 'unfit')
  if others_can_run(string.match(record.call, '^[^?]*'), mine, refused or '') then
    redis.call('HSET', record_key(id), 'unfit', refused and refused .. ' ' .. mine or mine)
    OUTCOMES.released(id, record, 0, text)
    return LEFT
  end
  local since = tonumber(record.unknown) or now
  if outcome == 'unfit' or now - since >= UNKNOWN_LIMIT then
    if outcome == 'unfit' then tally(record, 'failed') end
    return OUTCOMES.failed(id, record, delay, text)
  end
  redis.call('HSET', record_key(id), 'unknown', since)
  wait_again(id, record, 'unknown', now + delay, text, false)
end
OUTCOMES.unfit = OUTCOMES.unknown

-- Lets the task's lane of a rate rest. Afterwards its tasks start at the rate: a burst is what was not used before.
local rest = uses_limits and function(id, record, name, delay)
  local limits = limits_of(string.match(record.call, '^[^?]*')) or {}
  record.args = redis.call('HGET', record_key(id), 'args') or nil
  local lanes = lanes_of(limits, record)
  for i, limit in ipairs(limits) do
    local spec = limit[1] == name and limit_of(lanes[i])
    if spec and tonumber(spec.interval) then
      local arrival = now_us + delay * 1000 + (burst_of(spec) - 1) * spec.interval
      arrival = string.format('%.0f', math.max(arrival, rate_score(rest_of(lanes[i]))))
      change_lane('ZADD', rates_key(), arrival, rest_of(lanes[i]))
    end
  end
end

local function runs(record, token) return record.state == 'running' and record.token == token end

local function settle(item, text, none_has_timer)
  local id, token, outcome, delay, record, rate, late, cause, objective = unpack(item, 1, 9)
  if not record then return REFUSED end
  if runs(record, token) then
    if outcome == 'busy' then
      if uses_limits then rest(id, record, rate, delay) end
      outcome = 'snoozed'
    end
    tally(record, outcome)
    if cause ~= '' then tally_late(id, record, outcome, late, cause, objective) end
    local asked = record.next or record.rearm or not none_has_timer
    if asked and rearm(id, record) then return DONE end
    if record.cancel and not FINISHED[outcome] then outcome = 'cancelled' end
    return OUTCOMES[outcome](id, record, delay, text, outcome) or DONE
  end
  if record.settled == token and outcome == 'unfit' then return LEFT end
  if record.token == token and record.state == 'failed' and outcome == 'retry' then return OVER end
  if record.settled == token or (record.token == token and FINISHED[record.state]) then return DONE end
  return REFUSED
end

-- If the fleet runs several codes, this one may lack the functions of those that wait.
if uses_limits and not string.find(fleet_code or '', ' ', 1, true) then ready.own = tonumber(ARGV[5]) end

local reply = ring_after(function()
  local reply, items, keys = {}, {}, {}
  for at = 6, #ARGV, 2 do
    local id, token, outcome, delay, rate, late, cause, objective = string.match(ARGV[at],
      '^(%S+) (%S+) (%S+) (%S+) ?(%S*) ?(%S*) ?(%S*) ?(%S*)$')
    local record = read(id, FIELDS)
    items[#items + 1] = { id, token, outcome, tonumber(delay), record, rate, late, cause, objective }
    if record and runs(record, token) then keys[#keys + 1] = trigger_key(id, record) end
  end
  -- A timer that was set while its task ran asks for another run: all are looked for at once.
  local none_has_timer = keys[1] and redis.call('EXISTS', unpack(keys)) == 0
  for i, item in ipairs(items) do reply[i] = settle(item, ARGV[5 + 2 * i], none_has_timer) end
  write_succeeded()
  write_tally()
  return reply
end, true)
if uses_limits and ready.count > 0 and ready.count <= ready.own then reply[#reply + 1] = GRANTED end
return reply
