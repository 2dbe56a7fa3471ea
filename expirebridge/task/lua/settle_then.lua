-- flags: allow-oom
-- Records that attempts succeeded, and makes the task that the handler of each returned: both, or neither.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 to 5 as of settle.lua, then for each attempt: the two arguments that it has there, and
--          those that the new task has in make.lua, from its id on
-- returns  for each attempt a code of settle.lua, or {6, state} if it is not settled: the new task's id is that of an
--          unfinished task; {7, state}: to be extended, that has another function or other arguments; or {8, state}: it
--          would be a member of a group that is not there, or {9, state}: of one that takes no more
--
-- The new task is made first: if it cannot be, the attempt is not settled. A resend makes nothing.

-- include features
-- include format
-- include tally
-- include settlement
-- include making
-- include names
-- include ring

local NOT_MADE = { [MADE.exists] = 6, [MADE.in_ledger] = 6, [MADE.differs] = 7, [MADE.no_group] = 8, [MADE.closed] = 9 }

local function settle_then(at)
  local item = read_item(at)
  local id, new, after = read_new(at + 2)
  if item[5] and is_claimed(item[5], item[2]) then
    local code, _, state = make_one(id, new, '')
    if NOT_MADE[code] then return { NOT_MADE[code], state }, after end
    redis.call('HSET', record_key(item[1]), 'then', id)
    if id == item[1] then item = read_item(at) end
  end
  local code = settle(item, ARGV[at + 1], has_no_timer({ item }))
  write_succeeded()
  return code, after
end

mark_format()
return ring_after(function()
  local reply, at = {}, 6
  while at <= #ARGV do reply[#reply + 1], at = settle_then(at) end
  write_tally()
  return reply
end)
