-- flags: allow-oom
-- Releases tasks whose lease has lapsed, checks paused tasks, and deletes old finished tasks and dead listeners.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 lease in ms, 3 most ids to handle, 4 succeeded tasks to keep at most,
--          5 ms to keep a succeeded task, 6 ms to keep a failed one
-- returns  1 if there is more to do, tasks forgotten, ids that lapsed, ids that lapsed once too
--          often and failed, ms until the first lease of a running task ends (-1: none runs), how many
--          places in lanes were wrong and are mended, names of groups of which members are to be cancelled

-- include names
-- include clock
-- include records
-- include state_sets
-- include history
-- include timer_edits
-- include fleet
-- include rearm
-- include format
-- include hooks
-- include ring

local lease, most, keep_count = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local keep_succeeded, keep_failed = tonumber(ARGV[5]), tonumber(ARGV[6])

local MAX_LAPSES = 3

local left, forgotten, lapsed, failed = most, 0, {}, {}

local function due_in(state, until_ms, from)
  if left <= 0 then return {} end
  local ids = redis.call('ZRANGEBYSCORE', state_set(state), from or '-inf', until_ms, 'LIMIT', 0, left)
  left = left - #ids
  return ids
end

local function lapse(id)
  -- The token is not read: its holder's messages are now refused.
  local record = read(id, { 'attempt', 'lapses', 'due', 'rearm', 'next', 'cancel' })
  if not record then return fail_broken(id, 'running', keep_failed) end
  if repair_place(id, record, 'running', keep_failed) then return end
  redis.call('HDEL', record_key(id), 'token')
  if rearm(id, record) then
    lapsed[#lapsed + 1] = id
    return
  end
  if record.cancel then
    finish(id, record, 'cancelled', keep_succeeded)
    return
  end
  local lapses = (tonumber(record.lapses) or 0) + 1
  redis.call('HSET', record_key(id), 'lapses', lapses)
  if lapses >= MAX_LAPSES then
    finish(id, record, 'failed', keep_failed, 'error',
      lapses .. ' listeners died, or fell silent, while they ran it')
    failed[#failed + 1] = id
    return
  end
  lapsed[#lapsed + 1] = id
  note_attempt(id, 'lapsed')
  local attempt = math.max((tonumber(record.attempt) or 1) - 1, 0)
  redis.call('HSET', record_key(id), 'attempt', attempt, 'error', 'its listener died, or fell silent')
  move(id, record, 'pending', number_up_to(2 ^ 53, record.due) or now)
end

-- A paused task's timer has no TTL. If it is gone, a client gave it one, whose expiry was missed. A deletion that was
-- missed looks the same, and is ignored.
local function look_at_paused(id)
  local record = read(id)
  if not record then
    fail_broken(id, 'paused', keep_failed)
  elseif repair_place(id, record, 'paused', keep_failed) then
    return
  elseif not read_timer(id, record) then
    note(id, 'edit', nil, now)
    move(id, record, 'pending', now)
  else
    follow_timer(id, record)
  end
end

local function forget_all(state, until_ms, from)
  for _, id in ipairs(due_in(state, until_ms, from)) do
    local record = read(id)
    local longer
    for i = 1, record and #kept_longer or 0 do longer = longer or kept_longer[i](id, record) end
    if longer then
      redis.call('ZADD', state_set(state), now + longer, id)
    else
      if not record or not repair_place(id, record, state, keep_failed) then forget(id, state) end
      forgotten = forgotten + 1
    end
  end
end

local function forget_surplus()
  local surplus = redis.call('ZCARD', state_set('succeeded')) - keep_count
  if surplus <= 0 or left <= 0 then return end
  local whole = left
  left = math.min(left, surplus)
  local asked = left
  forget_all('succeeded', now + keep_succeeded - LATE_EVENTS)
  left = whole - (asked - left)
end

ring_after(function()
  -- Otherwise the next heartbeat renews the leases.
  if not is_long_ago(last_beat(), lease) then
    for _, id in ipairs(due_in('running', now)) do lapse(id) end
  end
  for _, id in ipairs(due_in('paused', now)) do look_at_paused(id) end
  forget_all('succeeded', now)
  forget_all('failed', now)
  forget_all('cancelled', now - ASIDE)
  forget_all('cancelled', now, -ASIDE / 2)
  forget_surplus()
  for i = 1, #on_sweep do on_sweep[i](most, lease, keep_failed) end
  local dead = redis.call('ZRANGEBYSCORE', listeners_key, '-inf', now - 10 * lease)
  if dead[1] then
    redis.call('ZREMRANGEBYSCORE', listeners_key, '-inf', now - 10 * lease)
    forget_codes(dead)
  end
end)
local over = redis.call('ZRANGE', state_set('running'), 0, 0, 'WITHSCORES')[2]
-- If there is more to do, how many places were wrong, and names of what is being stopped.
local found = { is_more = left <= 0 }
for i = 1, #on_swept do on_swept[i](found) end
return { found.is_more and 1 or 0, forgotten, lapsed, failed, over and math.max(over - now, 0) or -1, found.mended or 0,
  found.stopping or {} }
