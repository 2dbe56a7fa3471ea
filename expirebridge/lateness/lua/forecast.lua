-- flags: no-writes
-- Counts the tasks that come due in each of the next spans of time, and samples their functions.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 ms of a span, 3 spans, 4 tasks of each span to look at, at most
-- returns  now, pending tasks whose time has passed, waiting tasks, pending ones that are due after the last span,
--          series, {function of each of the overdue ones that was looked at}, then for each span: how many are due
--          in it, {function of each that was looked at}
--
-- Scores are used as they are: a task whose timer was put off by a plain EXPIRE is counted at its old
-- time, until a listener looks at it. Samples are spread evenly over their span.

-- include names
-- include format
-- include clock

local width, spans, most = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local set = state_set('pending')

local function function_at(rank)
  local id = redis.call('ZRANGE', set, rank, rank)[1]
  local call = id and redis.pcall('HGET', record_key(id), 'call')
  return type(call) == 'string' and string.match(call, '^[^?]*') or '?'
end

-- The functions of some of `count` tasks, from this rank on.
local function sample(rank, count)
  local functions, looks = {}, math.min(count, most)
  for i = 0, looks - 1 do
    functions[#functions + 1] = function_at(rank + math.floor(i * count / looks))
  end
  return functions
end

local before = redis.call('ZCOUNT', set, '-inf', now)
local reply = { now, before, redis.call('ZCARD', state_set('waiting')), 0, redis.call('ZCARD', own_key('series')),
  sample(0, before) }
for span = 1, spans do
  local upto = redis.call('ZCOUNT', set, '-inf', now + span * width)
  local count = upto - before
  reply[#reply + 1] = count
  reply[#reply + 1] = sample(before, count)
  before = upto
end
reply[4] = redis.call('ZCARD', set) - before
return reply
