-- flags: no-writes
-- Reads the calls of the tasks of one state, a page at a time, in the order of their set.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 state, 3 score and 4 id of the last task of the page before (score '' to
--          begin), 5 the highest score to look at, as ZCOUNT takes it, 6 most tasks to look at
-- returns  score (nil: no more) and id of this page's last task, how many were looked at, then for
--          each: id, call (nil: its record cannot be read), arguments that are in the record, due in ms
--          (nil: it has no due time), the function that it may run instead (nil: none)
--
-- A page begins behind a task, not at a rank: each task that keeps its place is read once, whatever
-- comes and goes meanwhile. Scores are used as they are: see forecast.lua. Of a task that runs, the
-- call is the one that any further run would make; it is left out if there can be none.

-- include names
-- include records
-- include state_sets
-- include hooks

local state, last_score, last_id = ARGV[2], ARGV[3], ARGV[4]
local highest, count = ARGV[5], tonumber(ARGV[6])
local set = state_set(state)
local HAS_DUE = { pending = true, waiting = true } -- their scores are due times

local OTHERS = all_fields({}, other_functions)
local RUNNING, OTHER = { 'args', 'due', 'rearm', 'next', 'cancel' }, { 'args', unpack(OTHERS) }

local reply = { false, '', 0 }

local function add(id, call, args, due, other)
  local length = #reply
  reply[length + 1], reply[length + 2], reply[length + 3], reply[length + 4] = id, call, args, due
  reply[length + 5] = other or false
end

local function other_of(record)
  for _, name in ipairs(OTHERS) do
    if record[name] then return record[name] end
  end
end

local function other_of_next(fields)
  for _, name in ipairs(OTHERS) do
    local func = value_of(fields, name)
    if func then return tostring(func) end
  end
end

local function add_running(id)
  local record = read(id, RUNNING)
  if not record then
    add(id, false, false, false)
  elseif record.state ~= state then
    return
  elseif record.next and record.next.ended then
    return
  elseif record.next then
    local args = value_of(record.next.fields, 'args')
    add(id, record.next.call, args and tostring(args) or false,
      string.format('%.0f', record.next.due), other_of_next(record.next.fields))
  elseif record.rearm or not record.cancel then
    add(id, record.call, record.args or false, record.rearm or record.due or false)
  end
end

local function add_other(id, score)
  local record = read(id, OTHER)
  if not record then
    add(id, false, false, false)
  elseif record.state == state then
    -- What runs a failed task again runs the function that has failed.
    add(id, record.call, record.args or false, HAS_DUE[state] and score or false,
      state ~= 'failed' and other_of(record))
  end
end

local from = last_score == '' and 0 or rank_behind(set, last_score, last_id)
local upto = math.min(from + count, redis.call('ZCOUNT', set, '-inf', highest))
local found = upto > from and redis.call('ZRANGE', set, from, upto - 1, 'WITHSCORES') or {}
for at = 1, #found, 2 do
  if state == 'running' then add_running(found[at]) else add_other(found[at], found[at + 1]) end
end
reply[3] = #found / 2
if reply[3] == count then reply[1], reply[2] = found[#found], found[#found - 1] end
return reply
