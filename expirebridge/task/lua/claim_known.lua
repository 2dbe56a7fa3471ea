-- flags: allow-oom
-- Claims due tasks whose functions the listener has, while its fleet runs more than one code, or many tasks wait
-- whose functions no listener has. Tasks that only other listeners can run are left to them.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 to 9 as for `claim`, 10 the listener's code: its fingerprint, and ` ?` if it passes over
--          many tasks that no listener can run, or that are blocked, 11 to 13 as for `claim`, or '', 14
--          fingerprints of the fleet, each with how many listeners run it; then for each scan of the pending tasks:
--          score and id behind which it continues ('' : before all of that score), its last score, 1 if it is
--          a walk from the front: only on those are tasks of ordered lanes taken
-- returns  as `claim`, but: the ms at which the first task that is not due yet is due; in the fifth
--          place 1 if nothing was claimed because `claim` would do, or else
--          {the codes that the fleet runs, for each scan: score and id that it has reached, 1 if it is at its
--          end, number of tasks that it left}
--
-- One call looks at a limited number of tasks, taken or not, so that it holds the server for a millisecond or two;
-- the next call continues where this one ended. A scan ends at tasks that are not due yet. A task whose function no
-- listener has gets a note of the reason and the time, once. It stays pending, and after a day it is claimed, so that
-- the listener fails it.

-- include names
-- include format
-- include clock
-- include state_sets
-- include timer_edits
-- include fleet
-- include ring
-- include claims
-- include hooks

local LOOKS = 250
-- So many of them at those that come before all others. Those that this listener cannot run are met again each time.
local LOOKS_BEFORE = 50

local mine = string.match(ARGV[10], '^%x+')
local set = state_set('pending')
-- Without its declaration a listener takes every task, and returns those that it cannot run.
local declared = type(redis.pcall('HGET', code_key(mine), '#')) == 'string'
local owners, looks, left = {}, 0, 0
local peers, waiting, running = {}, 0, 0
if listeners then
  waiting, running = redis.call('ZCOUNT', set, '-inf', now), redis.call('ZCARD', state_set('running'))
end

-- Who has a function: 'mine', 'others' or 'nobody'.
local function owner_of(func)
  if not owners[func] then
    local others, own = others_can_run(func, mine, '')
    owners[func] = (own or not declared) and 'mine' or others and 'others' or 'nobody'
  end
  return owners[func]
end

-- Number of listeners that have a function; those without a declaration count as having it.
local function count_peers(func)
  local count, fingerprint = listeners, nil
  for word in string.gmatch(ARGV[14], '%S+') do
    if not fingerprint then
      fingerprint = word
    else
      if type(redis.pcall('HGET', code_key(fingerprint), func)) ~= 'string' then count = count - tonumber(word) end
      fingerprint = nil
    end
  end
  return math.max(count, 1)
end

-- Takes a task, unless the listener has its share of the due and running ones, among those that have this function.
local function take_unless_share(id, score, func)
  if held and not peers[func] then peers[func] = count_peers(func) end
  if held and claimed >= share_of(waiting, running, peers[func]) then
    reply[3] = SHARE
  else
    take_if_due(id, score)
  end
end

local function note_stranded(id, func, record)
  looks = looks + 3 -- to write a note costs the server as much as three looks
  if repair_place(id, record, 'pending', keep_failed) then return end
  if read_timer(id, record) then return follow_timer(id, record) end
  redis.call('HSET', record_key(id), 'unknown', now, 'error', 'no listener knows the function '
    .. func .. '; waits for one, for a day')
end

local function take_or_leave(id, score)
  local values = redis.pcall('HMGET', record_key(id), 'call', 'unknown', 'unfit', 'state', 'key',
    'ledger')
  for i = 1, #on_look do
    if on_look[i]({ ledger = values[6] }) then
      left = left + 1
      return
    end
  end
  local func = string.match(values[1] or '', '^[^?]*')
  if func == '' then return take_if_due(id, score) end
  local owner, unknown, refused = owner_of(func), tonumber(values[2] or nil), values[3]
  if owner == 'mine' and not (refused and string.find(refused, mine, 1, true)
    and others_can_run(func, mine, refused)) then
    return take_unless_share(id, score, func)
  end
  if owner == 'nobody' then
    if unknown and now - unknown >= UNKNOWN_TIMEOUT then return take_if_due(id, score) end
    if not unknown then
      note_stranded(id, func, { call = values[1], state = values[4] or 'pending', key = values[5] })
    end
  elseif unknown then
    redis.call('HDEL', record_key(id), 'unknown', 'error') -- a listener has the function by now
  end
  left = left + 1
end

local function is_full()
  return claimed >= places or bytes >= max_bytes or reply[3] ~= 0 or parked >= MOST_PARKED
end

local function scan(score, id, last, most)
  local from = id == '' and redis.call('ZCOUNT', set, '-inf', '(' .. score) or rank_behind(set, score, id)
  local upto = redis.call('ZCOUNT', set, '-inf', last)
  local ids = {}
  if from < upto and most > 0 then
    ids = redis.call('ZRANGE', set, from, math.min(from + most, upto) - 1, 'WITHSCORES')
  end
  local stop = looks + most
  for i = 1, #ids, 2 do
    if looks >= stop or is_full() then return { score, id, 0, left } end
    looks = looks + 1
    take_or_leave(ids[i], ids[i + 1])
    -- A task that must run alone, or is more than the share, and was not taken, is met again.
    if reply[3] ~= 0 and not alone then return { score, id, 0, left } end
    score, id = ids[i + 1], ids[i]
  end
  return { score, id, from + #ids / 2 >= upto and 1 or 0, left }
end

local function take_before_all()
  from_front = false
  for i = 1, #on_first do
    local ids = on_first[i](LOOKS_BEFORE)
    for at = 1, #ids, 2 do
      if is_full() then break end
      looks = looks + 1
      take_or_leave(ids[at], ids[at + 1])
    end
    write_taken()
  end
end

local function scan_all(scans)
  local reached = { fleet_code or '' }
  for at = 1, #scans, 4 do
    -- Looks that one scan does not use are left to the next.
    local most = math.max(math.floor((LOOKS - looks) / ((#scans - at + 1) / 4)), 0)
    left, skipped, from_front = 0, 0, scans[at + 3] == '1'
    local last = scans[at + 2]
    local at_now = (tonumber(last) or now) >= now
    if at_now then last = now end
    local found = scan(scans[at], scans[at + 1], last, most)
    found[4] = left + skipped
    write_taken() -- another scan may come to the same tasks
    -- More tasks may become due in this millisecond.
    if found[3] == 1 and at_now then found[1], found[2] = string.format('%.0f', now), '' end
    for _, value in ipairs(found) do reached[#reached + 1] = value end
  end
  return reached
end

if resend then find_claimed() end
if claimed == 0 then
  for i = 1, #lacking do
    if lacking[i]() then
      reply[5] = 3
      return reply
    end
  end
  if ARGV[10] == (fleet_code or ARGV[10]) and ARGV[10] == mine then
    reply[5] = 1
    return reply
  end
  -- Before it passes over tasks, the fleet is notified, so that due tasks are announced.
  if ARGV[10] ~= mine and not string.find(fleet_code or '', '?', 1, true) then
    redis.pcall('HSET', meta_key, 'code', (fleet_code or mine) .. ' ?')
    notify_listeners('beat')
  end
  take_before_all()
  reply[5] = scan_all({ unpack(ARGV, 15) })
end

for i = 1, #on_left do on_left[i]() end
local leaves_some = run_at_end()
reply[7] = parked
if listeners then reply[6] = running + claimed end
local first = redis.call('ZRANGE', set, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
if leaves_some then reply[2] = now elseif first[2] then reply[2] = tonumber(first[2]) end
return reply
