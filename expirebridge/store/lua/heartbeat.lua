-- flags: allow-oom
-- A listener says that it is alive and which claims it holds; their leases are renewed.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 listener, 3 lease in ms, then id and token of each task that it holds
-- returns  now in microseconds, the listener's rank among those that beat, their number,
--          1 if none had beaten for half a lease, the ids that it lost (not those that it
--          settled while this heartbeat was on its way), id and token of each that was cancelled,
--          when this database was first written to, the names of keys of ours that were mended
--
-- If none beat for long, the server was away or its clock jumped: no listener died, and every
-- running task gets one more lease. If the clock went back, times that are now too far ahead are
-- reduced.

-- include names
-- include clock
-- include mark_format
-- include mend
-- include records
-- include beats

local me, lease = ARGV[2], tonumber(ARGV[3])
local running = state_set('running')

local function renew_all(from)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', running, from, '+inf')) do
    redis.call('ZADD', running, 'XX', now + lease, id)
  end
end

local function clock_went_back()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', listeners_key, '(' .. now, '+inf')) do
    redis.call('ZADD', listeners_key, 'XX', now, id)
  end
  renew_all('(' .. (now + lease))
end

mend('meta', 'hash')
mark_format()
local meta = redis.call('HMGET', meta_key, 'database', 'born')
if meta[1] ~= ARGV[1] then redis.call('HSET', meta_key, 'database', ARGV[1]) end
mend('listeners', 'zset')
for _, state in ipairs(STATES) do mend(state, 'zset') end
local last = last_beat()
local gap = is_long_ago(last, lease)
if gap then renew_all('-inf') end
if last > now then clock_went_back() end

redis.call('ZADD', listeners_key, now, me)
-- A lease has three beats: after half a lease without one, its listener is not counted.
local beating = redis.call('ZRANGEBYSCORE', listeners_key, now - lease / 2, '+inf')
local rank = 0
for _, other in ipairs(beating) do
  if other < me then rank = rank + 1 end
end

local lost, cancelled = {}, {}
for at = 4, #ARGV, 2 do
  local id, token = ARGV[at], ARGV[at + 1]
  local record = read(id, { 'token', 'settled', 'cancel' })
  if record and record.state == 'running' and record.token == token then
    redis.call('ZADD', running, 'XX', now + lease, id)
    if record.cancel then
      cancelled[#cancelled + 1] = id
      cancelled[#cancelled + 1] = token
    end
  elseif not record or (record.token ~= token and record.settled ~= token) then
    lost[#lost + 1] = id
  end
end
return { now_us, rank, #beating, gap and 1 or 0, lost, cancelled, meta[2] or '', mended }
