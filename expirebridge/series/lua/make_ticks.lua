-- flags: (none: refused whole when memory is full)
-- Makes the next tick of each series, unless another listener was faster.
--
-- KEYS[1]  prefix
-- ARGV     1 database, then for each series: id, the ms for which its latest tick stands, the ms for
--          which the next one stands ('' : there is none), when that is due, when the one after it is
--          due ('' : never), by which data of the zone that was computed ('' : no zone)
-- returns  for each series: 1 made, 2 another was faster, or the series changed

-- include format
-- include series
-- include series_keys
-- include ring

local MADE, PASSED_OVER = 1, 2

local function follow(series, latest, at, due, successor, tzdata)
  local known = redis.pcall('HMGET', series_key(series), 'tick', 'paused')
  if known.err or tonumber(known[1] or nil) ~= latest or known[2] then return PASSED_OVER end
  if at then
    advance(series, at, due, successor, tzdata)
  else
    end_making(series)
  end
  return MADE
end

return ring_after(function()
  local reply = {}
  for at = 2, #ARGV, 6 do
    reply[#reply + 1] = follow(ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]),
      tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), ARGV[at + 5])
  end
  return reply
end)
