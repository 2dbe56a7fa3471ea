-- flags: (none: refused whole when memory is full)
-- Sets the number of a limit, or of one value of it, which counts instead of the declared one; or takes it back.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 limit, 3 '' or a value, after a space, 4 number, '' to take back
-- returns  1 done; or why not: see numbers.lua
--
-- A number can be taken back whatever became of its limit. Some lanes may have more slots now: the fullest are served
-- here, and the sweeps go over all of them at once.

-- include names
-- include format
-- include limits
-- include lanes
-- include numbers
-- include ring

local DONE, SERVED = 1, 100
local name, own, number = ARGV[2], ARGV[3], ARGV[4]
local key, field = own_key('numbers'), name .. own

if number == '' then
  if redis.pcall('HDEL', key, field) ~= 1 then
    local judged = judge_number(name, own ~= '', '1')
    return judged == 5 and DONE or judged
  end
else
  local judged = judge_number(name, own ~= '', number)
  if judged ~= DONE then return judged end
  change_lane('HSET', key, field, number)
end
if not touched then return DONE end
redis.call('HSET', own_key('limits'), 'changed', 1, 'cursor', '0')

-- One that was granted a start of a rate, an hour ahead maybe, would be overtaken here: the sweeps bring it forward first.
local function serve(lane)
  local limit = limit_of(lane)
  if not limit or not limit.interval then touched[lane] = true end
end

ring_after(function()
  if own ~= '' then return serve(name .. '=' .. string.sub(own, 2)) end
  for _, lane in ipairs(change_lane('ZREVRANGE', own_key('lanes'), 0, SERVED - 1)) do
    if string.match(lane, '^[^=]*') == name then serve(lane) end
  end
end)
return DONE
