-- flags: no-writes
-- Finds ids with a given beginning, in one state; their records are not read.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 state, 3 the beginning, 4 rank to look from, 5 most ids to look at,
--          6 most ids to find
-- returns  the rank to go on from (-1: no more), how many were looked at, then the ids
--
-- Unfinished tasks come soonest first, finished ones latest first, as in `list`.

-- include names
-- include records

local state, beginning, from = ARGV[2], ARGV[3], tonumber(ARGV[4])
local most, wanted = tonumber(ARGV[5]), tonumber(ARGV[6])

local order = FINISHED[state] and 'ZREVRANGE' or 'ZRANGE'
local ids = redis.call(order, state_set(state), from, from + most - 1)
local reply = { #ids < most and -1 or from + #ids, #ids }
for place, id in ipairs(ids) do
  if string.sub(id, 1, #beginning) == beginning then
    reply[#reply + 1] = id
    if #reply == wanted + 2 then
      reply[1], reply[2] = from + place, place
      break
    end
  end
end
return reply
