-- The server's clock, the only one that counts. `now` is in ms, `now_us` in microseconds.
local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = math.floor(now_us / 1000)
