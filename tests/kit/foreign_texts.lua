-- Writes what other clients could have written, in one script, so that a text is sent once.
--
-- KEYS[1]  prefix
-- ARGV     1 the text of all fields, 2 what `meta` says of a move, or '', 3 the score of all tasks, '' for a time that has
--          passed, 4 the end of all timers in ms, '' for none

local T, moving, score, timer = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local P = KEYS[1] .. ':'
local time = redis.call('TIME')
local now = time[1] * 1000
if score == '' then score = now - 100000 end
redis.call('HSET', P .. 'meta', 'format', 1, 'database', 0, 'partitions', 1,
  'features', 'series ledger limits groups signals urgent' .. (moving ~= '' and ' moving' or ''))
if moving ~= '' then redis.call('HSET', P .. 'meta', 'moving', moving) end
local STATES = { a0 = 'pending', w0 = 'waiting', h0 = 'paused', r0 = 'running', s0 = 'succeeded', f0 = 'failed',
  c0 = 'cancelled', ['ser@1000'] = 'pending', ['g@g0'] = 'running', ['g@then'] = 'paused' }
local TEXTS = { 'args', 'error', 'result', 'history', 'nonce', 'tags', 'unfit', 'slots', 'waited', 'late', 'tenant',
  'queue', 'retry', 'trace', 'misfire', 'after', 'then', 'settled', 'next', 'tick', 'first', 'snoozes', 'left', 'parked',
  'rearm', 'due', 'attempt', 'lapses', 'unknown', 'made', 'ttl', 'timeout',
  'lanes', 'charged', 'spent', 'turn', 'on_signal', 'passed', 'lost', 'signal', 'signalled', 'urgent' }
for id, state in pairs(STATES) do
  local key, fields = P .. 'task:' .. id, { 'call', 'mail.send?@' }
  for _, name in ipairs(TEXTS) do fields[#fields + 1], fields[#fields + 2] = name, T end
  redis.call('HSET', key, unpack(fields))
  if string.find(id, '@', 1, true) then redis.call('HSET', key, 'args', '[1]') end
  if state ~= 'pending' then redis.call('HSET', key, 'state', state) end
  if state ~= 'pending' and state ~= 'waiting' then redis.call('HSET', key, 'started', now, 'token', 't') end
  if state == 'running' then redis.call('HDEL', key, 'rearm', 'next') end
  redis.call('ZADD', P .. state, score, id)
  if timer ~= '' then redis.call('SET', id .. ':?mail.send?@', 0, 'PXAT', timer) end
  redis.call('ZADD', P .. 'dirty', 1, id)
end
redis.call('HSET', P .. 'task:w0', 'queue', 'A=1')
for _, id in ipairs({ 'w0', 'h0' }) do redis.call('HDEL', P .. 'task:' .. id, 'signalled', 'lost', 'signal') end
redis.call('HSET', P .. 'signals', 'since', T, 'signalled', T, 'passed', T)
redis.call('ZADD', P .. 'queue:A=1', 1, 'w0')
redis.call('HSET', P .. 'task:a0', 'started', now)
redis.call('ZADD', P .. 'grants', 1, 'a0')
redis.call('ZADD', P .. 'lanes', 1, 'A=1', 1, T)
redis.call('SADD', P .. 'lane:A=1', 'f0', 'a0', T)
redis.call('HSET', P .. 'limits', 'f mail.send', '[["A",0,"x",""]]', 'l A', '{"most":1,"ordered":true}', 'cursor', T,
  'waiting', T, 'f ' .. T, T, 'l ' .. T, T, 'p hold tag a', T)
redis.call('HSET', P .. 'holds', 'tag ' .. T, T, 'func x.y', T)
redis.call('HSET', P .. 'weights', 'A ' .. T, T)
redis.call('HSET', P .. 'numbers', 'A', T, 'A 1', T, 'A ' .. T, T, T, T)
redis.call('ZADD', P .. 'listeners', now, 'L1', now, 'L2', now, T)
redis.call('HSET', P .. 'fleet', 'L1', 'c0de =1', 'L2', T, T, T)
redis.call('HSET', P .. 'carriers', 'L1', T, 'L2', T)
redis.call('HSET', P .. 'code:c0de', '#', 1, 'mail.send', T, T, T)
redis.call('HSET', P .. 'durations', 'mail.send', T, T, T)
redis.call('HSET', P .. 'minute:' .. math.floor(now / 60000), 's1', T, T, 1)
redis.call('LPUSH', P .. 'actions', T)
redis.call('HSET', P .. 'imports', T, T, 'from', T)
redis.call('HSET', P .. 'arrivals', 'm', 0, T, T)
redis.call('HSET', P .. 'move', 'nonce', 'm', 'number', 0, 'to', 'x')
redis.call('HSET', P .. 'ledger', 'nonce', 'L', 'number', 0)
redis.call('ZADD', P .. 'series', 1000, 'ser')
redis.call('ZADD', P .. 'tzdata', 1, 'ser')
redis.call('HSET', P .. 'series:ser', 'call', 'mail.send?@', 'args', T, 'spec', T, 'overlap', 'skip', 'fingerprint', 'f0',
  'declared', 1, 'seen', T, 'made', 1, 'tick', 1000, 'due', 1000, 'tzdata', T, 'last', T, 'running', T, 'extra', T,
  'parked', T, 'tags', T, 'retry', T, 'timeout', T, 'misfire', T)
redis.call('ZADD', P .. 'groups', 9007199254740991, 'g', 1, T)
redis.call('HSET', P .. 'group:g', 'made', 1, 'definition', T, 'on_failed', 'wait', 'next', 1, 'left', 1, 'succeeded', 0,
  'failed', 0, 'cancelled', 0, 'then', 'g@then', 'failed_at', T)
redis.call('BITFIELD', P .. 'group:g@members', 'SET', 'u2', '#0', 1)
for _, tag in ipairs({ 'a', '1' }) do redis.call('SADD', P .. 'tag:' .. tag, 'a0', T) end
return now
