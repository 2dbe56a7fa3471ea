-- The server's clock, the only one used. `now` is in ms, `now_us` in microseconds.
local function read_clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local now_us = read_clock()
local now = math.floor(now_us / 1000)
