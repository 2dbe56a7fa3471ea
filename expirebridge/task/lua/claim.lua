-- flags: allow-oom
-- Claims due tasks for a listener: the one step that decides who runs what, and that it is time.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 token (the nonce of this claim), 3 lease in ms, 4 places (most tasks to
--          take), 5 most bytes of calls and arguments to take, 6 '1' if the listener runs nothing
--          at present, 7 ms to keep a failed task, 8 '1' if this is a resend, 9 the
--          fingerprint of the limits of its handlers, '' if they have none, 10 the listener's fingerprint,
--          or ''; if others live, too: 11 how many listeners, and if it is to take no more than its
--          share: 12 how many tasks it runs (else ''); and if it has a ledger: 13 the number of the batch
--          that must have been relayed here, or '' while nothing of it is to be claimed
-- returns  now in microseconds, the ms at which the next task is due (-1: none),
--          1 if nothing may be claimed until the listener is idle, because a task waits to be
--          claimed alone, or was, 2 if the listener has its share and leaves the rest; ids whose
--          records are missing or broken, 1 if nothing was claimed because the fleet runs more than
--          one code, 2 if because the first due task is of a ledger, and blocked: then `claim_known` is
--          to be sent; 3 if because the limits that it declares are not here: then `declare_limits` is;
--          how many tasks run now if others live, or -1; how many it made wait for slots; then
--          for each task:
--          '<id> <due> <attempt> <lapses> <made>', and ' again' after it if an attempt before was not counted, or it was
--          moved here from another database when it was due; trigger key, and nil, or what most tasks lack:
--          {call (if another name than the id's own is the trigger key's), the rare ones of
--          FIELDS, and names and values that a capability tells of it, if it does}
--
-- A client's time depends most on the number of parts in a reply: there are three for each task.
-- The timer of a due id may still run: then a client put it off, and only its score moves.

-- include names
-- include format
-- include clock

-- So many of the tasks that are due, the first first, each followed by its score.
local function first_due(most)
  return redis.call('ZRANGEBYSCORE', state_set('pending'), '-inf', now, 'WITHSCORES', 'LIMIT', 0, most)
end

local due = first_due(ARGV[4])
-- One claim in ten finds nothing, or one in two with many listeners. It needs none of the functions that follow, which take
-- the server longer to make than to find that; but a claim leaves and begins more where there are limits.
if not due[1] and not uses.limits and ARGV[8] ~= '1' and ARGV[9] == '' and (fleet_code or ARGV[10]) == ARGV[10] then
  local first = redis.call('ZRANGE', state_set('pending'), 0, 0, 'WITHSCORES')[2]
  local running = tonumber(ARGV[11]) and redis.call('ZCARD', state_set('running'))
  return { now_us, first and tonumber(first) or -1, 0, {}, false, running or -1, 0 }
end

-- include claims
-- include hooks
-- include ring

if resend then find_claimed() end
for i = 1, claimed == 0 and #lacking or 0 do
  if lacking[i]() then
    reply[5] = 3
    return reply
  end
end
if claimed == 0 and ARGV[10] ~= '' and fleet_code and fleet_code ~= ARGV[10] then
  reply[5] = 1
  return reply
end
local running = listeners and redis.call('ZCARD', state_set('running'))

-- True if it has places left, and has met nothing that others must not pass.
local function goes_on()
  return claimed < places and bytes < max_bytes and parked < MOST_PARKED and reply[3] == 0 and not meets_blocked
    and not alone
end

-- Looks at the first due tasks, or at those that come before them, and takes them. True if it is worth while to look
-- again: tasks were made to wait.
local function take_first(before_all)
  local before, free = parked, places - claimed
  local ids = before_all or due or first_due(free)
  local most = places
  if not before_all then due = nil end
  -- A listener that runs nothing may take one in any case.
  if held and ids[1] and (ids[3] or held > 0) then
    local count = #ids / 2
    if before_all or count == free then count = redis.call('ZCOUNT', state_set('pending'), '-inf', now) end
    most = share_of(count + claimed, running, listeners)
  end
  local records, all_values = {}, {}
  -- For one, this would be a command more.
  if ids[3] and most > 1 then records, all_values = look_ahead(ids, most) end
  for i = 1, #ids, 2 do
    if bytes >= max_bytes or alone or parked >= MOST_PARKED then break end
    if claimed >= most then
      if reply[3] == 0 then reply[3] = SHARE end
      break
    end
    take_if_due(ids[i], ids[i + 1], records[(i + 1) / 2], all_values[(i + 1) / 2])
    -- It stays in front: from now on `claim_known` passes over it.
    if meets_blocked then break end
  end
  write_taken()
  return parked > before and claimed < most and goes_on()
end

if claimed == 0 and places > 0 then
  for i = 1, #on_first do
    from_front = false
    repeat
      local ids = on_first[i](places - claimed)
      if ids[1] then due = nil end
      take_first(ids)
    until not ids[1] or not goes_on()
    from_front = true
  end
  repeat until not goes_on() or not take_first()
  if parked >= MOST_PARKED then
    for i = 1, #on_crowded do on_crowded[i]() end
  end
end
for i = 1, #on_left do on_left[i]() end
local leaves_some = run_at_end()

if meets_blocked and claimed == 0 then reply[5] = 2 end
reply[7] = parked
if listeners then reply[6] = running + claimed end
local first = redis.call('ZRANGE', state_set('pending'), 0, 0, 'WITHSCORES')
if leaves_some then reply[2] = now elseif first[2] then reply[2] = tonumber(first[2]) end
return reply
