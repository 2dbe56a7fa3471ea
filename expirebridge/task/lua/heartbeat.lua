-- flags: allow-oom
-- Records a listener's heartbeat, and renews the leases of the claims that it holds.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 listener, 3 lease in ms, 4 the code that it runs: its fingerprint, ` ?` if it
--          passes over many tasks that no listener can run, ` =` and its concurrency, ` key=` and what each of its
--          keys is known by, one word if it claims nothing (`stopping`, `suspended`, `blocked`), and ` over=` and
--          the id of tasks whose handlers overran their timeouts,
--          5 how many functions this code has, and behind a space the fingerprint of the limits that it declares, if
--          it has any, then id and token of each task that it holds
-- returns  now in microseconds, the listener's rank among the live ones, their number,
--          for how many ms none had sent a heartbeat (a gap, if that is more than half a lease), the ids that it
--          lost (not those that it settled while this heartbeat was on its way), id and token of each that was cancelled,
--          when this database was first written to, 1 if the functions of its code are not declared
--          completely, 2 if its limits are not declared, 3 if both; fingerprints and how many listeners run each, if there are several, at the first
--          heartbeat 1 if there are others that run as many tasks as they can, the ms at which the next tick of a
--          series is to be made (-1: there is no series)
--
-- All listeners send a heartbeat when one joins, so each has their new number at once.
--
-- If none sent a heartbeat for long, the server was away or its clock jumped: no listener died, and every
-- running task gets one more lease. If the clock went back, times that are now too far ahead are
-- reduced.

-- include names
-- include format
-- include clock
-- include features
-- include records
-- include fleet
-- include ring
-- include hooks

local me, lease, code = ARGV[2], tonumber(ARGV[3]), ARGV[4]
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

-- Notes the code of this listener, and the codes of the fleet. Returns true if that changed, and the number of
-- listeners of each code if there are several.
local function note_code(listeners)
  local words, counts, texts = {}, {}, codes_of(listeners)
  for i, listener in ipairs(listeners) do
    if listener == me and texts[i] ~= code then
      -- If another client overwrote the hash, all count as of one code.
      redis.pcall('HSET', fleet_key(), me, code)
      texts[i] = code
    end
  end
  -- Most listeners run the same: each text is split once.
  local alike = {}
  for _, text in ipairs(texts) do
    if text then alike[text] = (alike[text] or 0) + 1 end
  end
  for text, number in pairs(alike) do
    for word in string.gmatch(text, '%S+') do
      if not counts[word] and (word == '?' or is_fingerprint(word)) then
        counts[word] = 0
        words[#words + 1] = word
      end
      if counts[word] then counts[word] = counts[word] + number end
    end
  end
  table.sort(words)
  local shared, each = table.concat(words, ' '), {}
  for i = 1, #words > 1 and #words or 0 do
    if words[i] ~= '?' then
      each[#each + 1] = words[i]
      each[#each + 1] = counts[words[i]]
    end
  end
  if shared == (fleet_code or '') then return false, each end
  redis.call('HDEL', meta_key, 'code')
  if shared ~= '' then redis.call('HSET', meta_key, 'code', shared) end
  return true, each
end

-- True if the live listeners but this one run as many tasks as they can.
local function others_are_full(listeners)
  local most = 0
  for i, text in ipairs(codes_of(listeners)) do
    if listeners[i] ~= me then most = most + (tonumber(string.match(text or '', ' =(%d+)')) or 0) end
  end
  return most > 0 and redis.call('ZCARD', running) >= most
end

local function is_declared()
  local count = redis.pcall('HGET', code_key(string.match(code, '^%x+')), '#')
  return count == string.match(ARGV[5], '^%d+')
end

mark_format()
local birth = redis.call('HMGET', meta_key, 'database', 'born')
local database = string.match(ARGV[1], '^%d+')
if birth[1] ~= database then redis.call('HSET', meta_key, 'database', database) end
local last = last_beat()
local gap = is_long_ago(last, lease)
if gap then renew_all('-inf') end
if last > now then clock_went_back() end

local joined = redis.call('ZADD', listeners_key, now, me) == 1
-- A lease has three heartbeats: after half a lease without one, its listener is not counted.
local live = redis.call('ZRANGEBYSCORE', listeners_key, now - lease / 2, '+inf')
local rank = 0
for _, other in ipairs(live) do
  if other < me then rank = rank + 1 end
end

local changed, codes = note_code(live)
if changed or joined and #live > 1 then notify_listeners('beat') end
-- Until now, tasks that became due behind a task that is left to others were not announced: a heartbeat sent before
-- its listener began to pass over tasks does not have the `?`.
if changed and #codes > 0 then notify_listeners(string.format('%.0f', now - lease)) end

local HELD_FIELDS = { 'token', 'settled', 'cancel' }
local lost, cancelled = {}, {}
for at = 6, #ARGV, 2 do
  local id, token = ARGV[at], ARGV[at + 1]
  local record = read(id, all_fields(HELD_FIELDS, held_fields))
  if record and record.state == 'running' and record.token == token then
    redis.call('ZADD', running, 'XX', now + lease, id)
    for i = 1, #on_renew do on_renew[i](id, record) end
    if record.cancel then
      cancelled[#cancelled + 1] = id
      cancelled[#cancelled + 1] = token
    end
  elseif not record or (record.token ~= token and record.settled ~= token) then
    lost[#lost + 1] = id
  end
end
local reply = { now_us, rank, #live, now - last, lost, cancelled, birth[2] or '',
  is_declared() and 0 or 1, codes, joined and others_are_full(live) and 1 or 0, -1 }
for i = 1, #on_beat do on_beat[i](reply) end
return reply
