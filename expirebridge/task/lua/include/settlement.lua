-- include names
-- include clock
-- include records
-- include state_sets
-- include history
-- include fleet
-- include rearm
-- include tally
-- include format
-- include hooks
-- gives SETTLED, write_succeeded, is_claimed, settle, read_item, has_no_timer

-- Settles attempts: records how each ended, fenced by the token of its claim. The arguments of the script begin as
-- those of settle.lua.
--
-- An unknown or unfit task is left to other listeners if another code of the fleet, which has not refused the task,
-- has the function, with another signature if both have it: it is due as before, uncounted.
--
-- A task that was set, or rescheduled, while its handler ran waits for that time with fresh
-- attempts, whatever the outcome was. A cancelled one is not attempted again. A resend of what was
-- settled is answered as done.

local KEEP_SUCCEEDED, KEEP_FAILED, my_code = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
-- The result of recording an outcome; see settle.lua.
local SETTLED = { done = 1, refused = 2, left = 3, over = 4, ready = 5 }
-- What each settlement needs: to read a field takes about as long as a string operation.
local SETTLE_FIELDS = { 'token', 'due', 'unknown', 'rearm', 'next', 'cancel', 'started', 'error', 'lapses', 'unfit' }

local function wait_again(id, record, how, due, text, counted)
  for i = 1, how == 'released' and 0 or #on_let_go do on_let_go[i](id) end
  note_attempt(id, how, text)
  -- What is given back without a reason keeps the error of the attempt before.
  local fields = (how ~= 'released' or text ~= '') and { 'error', text } or {}
  if not counted then
    local attempt = tonumber(redis.call('HGET', record_key(id), 'attempt') or nil)
    fields[#fields + 1], fields[#fields + 2] = 'attempt', math.max((attempt or 1) - 1, 0)
  end
  redis.call('HSET', record_key(id), unpack(fields))
  wait_until(id, record, due)
  -- Last, so that a resend is not answered as done unless it was.
  redis.call('HSET', record_key(id), 'settled', record.token)
  redis.call('HDEL', record_key(id), 'token')
end

-- Succeeded tasks, with their results: they are written together. One command for many costs far less than one for
-- each.
local ended_well = {}

local function write_succeeded()
  if not ended_well[1] then return end
  local ids, places = {}, {}
  local keep_until, ended = string.format('%.0f', now + KEEP_SUCCEEDED), string.format('%.0f', now)
  for i = 1, #ended_well do
    local task = ended_well[i]
    ids[i], places[2 * i - 1], places[2 * i] = task[1], keep_until, task[1]
  end
  -- The destination first and the source last, as `move` does for one.
  redis.call('ZADD', state_set('succeeded'), unpack(places))
  for i = 1, #ended_well do
    local task = ended_well[i]
    if task[2] == '' then
      redis.call('HSET', record_key(task[1]), 'state', 'succeeded', 'ended', ended)
    else
      redis.call('HSET', record_key(task[1]), 'state', 'succeeded', 'ended', ended, 'result', task[2])
    end
  end
  redis.call('ZREM', state_set('running'), unpack(ids))
  for i = 1, #on_succeed do on_succeed[i](ended_well) end
  ended_well = {}
end

local BY_OUTCOME = {
  succeeded = function(id, record, _, text)
    if record.error or record.lapses or record.unknown or record.unfit then
      redis.call('HDEL', record_key(id), 'error', 'lapses', 'unknown', 'unfit')
    end
    ended_well[#ended_well + 1] = { id, text, record }
  end,
  failed = function(id, record, _, text)
    finish(id, record, 'failed', KEEP_FAILED, 'error', text)
  end,
  cancelled = function(id, record, _, text)
    finish(id, record, 'cancelled', KEEP_SUCCEEDED, 'error', text)
  end,
  retry = function(id, record, delay, text)
    for i = 1, #on_retry do
      if on_retry[i](id, now + delay) then
        finish(id, record, 'failed', KEEP_FAILED, 'error', text)
        return SETTLED.over
      end
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
-- The handler was not called, so a task that was claimed once has not begun.
BY_OUTCOME.unbegun = function(id, record, delay, text)
  local attempt = tonumber(redis.call('HGET', record_key(id), 'attempt') or nil)
  if (attempt or 1) <= 1 then redis.call('HDEL', record_key(id), 'started') end
  return BY_OUTCOME.released(id, record, delay, text)
end
-- A task that this code cannot run is left to others that can.
BY_OUTCOME.unknown = function(id, record, delay, text, outcome)
  local refused = redis.call('HGET', record_key(id), 'unfit')
  if others_can_run(string.match(record.call, '^[^?]*'), my_code, refused or '') then
    redis.call('HSET', record_key(id), 'unfit', refused and refused .. ' ' .. my_code or my_code)
    BY_OUTCOME.released(id, record, 0, text)
    return SETTLED.left
  end
  local since = tonumber(record.unknown) or now
  if outcome == 'unfit' or now - since >= UNKNOWN_TIMEOUT then
    if outcome == 'unfit' then tally(record, 'failed') end
    return BY_OUTCOME.failed(id, record, delay, text)
  end
  redis.call('HSET', record_key(id), 'unknown', since)
  wait_again(id, record, 'unknown', now + delay, text, false)
end
BY_OUTCOME.unfit = BY_OUTCOME.unknown

local function is_claimed(record, token) return record.state == 'running' and record.token == token end

local function settle(item, text, none_has_timer)
  local id, token, outcome, delay, record, more = unpack(item, 1, 6)
  if not record then return SETTLED.refused end
  local told, late, cause, objective
  if more ~= '' then told, late, cause, objective = string.match(more, '^ (%S+) ?(%S*) ?(%S*) ?(%S*)') end
  if is_claimed(record, token) then
    -- Since it was read, a task that this script has made may have taken over a key that is another's by its name.
    if record.key then record.key = redis.call('HGET', record_key(id), 'key') or nil end
    for i = 1, #on_settle do on_settle[i](id, record, outcome, told, delay) end
    if outcome == 'busy' then outcome = 'snoozed' end
    tally(record, outcome)
    if cause and cause ~= '' then tally_late(id, record, outcome, late, cause, objective) end
    local asked = record.next or record.rearm or not none_has_timer
    if asked and rearm(id, record) then return SETTLED.done end
    if record.cancel and not FINISHED[outcome] then outcome = 'cancelled' end
    local code = BY_OUTCOME[outcome](id, record, delay, text, outcome) or SETTLED.done
    for i = 1, #on_settled do on_settled[i](id, record) end
    return code
  end
  local is_settled = redis.call('HGET', record_key(id), 'settled') == token
  if is_settled and outcome == 'unfit' then return SETTLED.left end
  if record.token == token and record.state == 'failed' and outcome == 'retry' then return SETTLED.over end
  if is_settled or (record.token == token and FINISHED[record.state]) then return SETTLED.done end
  for i = 1, #on_refused do on_refused[i](id, record, token, told) end
  return SETTLED.refused
end

-- An attempt, and its record: from ARGV[at], '<id> <token> <outcome> ...'.
local function read_item(at)
  local id, token, outcome, delay, more = string.match(ARGV[at], '^(%S+) (%S+) (%S+) (%S+)(.*)')
  return { id, token, outcome, tonumber(delay), (read(id, all_fields(SETTLE_FIELDS, settle_fields))), more }
end

-- A timer that was set while its task ran asks for another run: those of all attempts are looked for at once.
local function has_no_timer(items)
  local keys = {}
  for _, item in ipairs(items) do
    if item[5] and is_claimed(item[5], item[2]) then keys[#keys + 1] = trigger_key(item[1], item[5]) end
  end
  return keys[1] and redis.call('EXISTS', unpack(keys)) == 0
end
