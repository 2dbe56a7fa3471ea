-- flags: (none: refused whole when memory is full)
-- Makes series, or changes them, each with its next tick; a waiting tick is replaced.
--
-- KEYS[1]  prefix
-- ARGV     1 database, then for each series:
--          id, fingerprint, the fingerprint that it replaces ('' : there is no such series yet), '1' if
--          handlers declare it (else '0'), when it is made, in ms, if it is new, the next tick's ms
--          ('' : there is none any more), when that is due, when the tick after it is due ('' : never),
--          by which data of the zone that was computed ('' : no zone), n, then n names and values for its
--          record
-- returns  for each series: 1 created, 2 changed, 3 unchanged, 4 another was faster, 5 the next tick's
--          time has passed: compute it again
--
-- A paused series stays paused, and its past stays in the record.

-- include clock
-- include features
-- include ring
-- include series
-- include series_keys

local CREATED, CHANGED, UNCHANGED, RACE, LATE = 1, 2, 3, 4, 5
local DEFINITION = { 'call', 'spec', 'overlap', 'tzdata', unpack(OF_TICKS) }

local function next_item(at)
  local item = { id = ARGV[at], fingerprint = ARGV[at + 1], before = ARGV[at + 2],
    declared = ARGV[at + 3] == '1', made = ARGV[at + 4], tick = tonumber(ARGV[at + 5]),
    due = tonumber(ARGV[at + 6]), successor = tonumber(ARGV[at + 7]), tzdata = ARGV[at + 8] }
  local stop = at + 9 + 2 * tonumber(ARGV[at + 9])
  item.fields = { unpack(ARGV, at + 10, stop) }
  return item, stop + 1
end

local function write_definition(item, old)
  local key = series_key(item.id)
  redis.call('HDEL', key, 'declared', unpack(DEFINITION))
  if old.tzdata then redis.call('ZREM', tzdata_set(), item.id) end
  redis.call('HSET', key, 'fingerprint', item.fingerprint, unpack(item.fields))
  if item.declared then
    redis.call('HSET', key, 'declared', 1)
    if not old.seen then
      redis.call('HSET', key, 'seen', string.format('%s=%.0f', item.fingerprint, now_us))
    end
  end
  if not old.call then
    redis.call('HSET', key, 'made', item.made)
    redis.call('PERSIST', key) -- a ledger's series of that id may have left it
  end
end

local function place(item, old)
  if old.tick then drop_waiting(item.id, old.tick) end
  if old.paused or not item.tick then
    redis.call('HDEL', series_key(item.id), 'tick', 'due')
    end_making(item.id)
  else
    advance(item.id, item.tick, item.due, item.successor, item.tzdata)
  end
end

local function put(item)
  local values = redis.call('HMGET', series_key(item.id), 'call', 'fingerprint', 'tick', 'paused', 'seen',
    'tzdata')
  local old = { call = values[1], tick = tonumber(values[3] or nil), paused = values[4], seen = values[5],
    tzdata = values[6] }
  -- As a reader sees it: what lacks its call, or its place, is none, and is made again.
  local stands = values[1] and has_place(item.id)
  if not stands then old.call = nil end
  if stands and values[2] == item.fingerprint then return UNCHANGED end
  if (stands and values[2] or '') ~= item.before then return RACE end
  if item.tick and item.tick <= now then return LATE end
  write_definition(item, old)
  place(item, old)
  return old.call and CHANGED or CREATED
end

note_feature('series')
local before = redis.call('ZRANGE', series_set(), 0, 0, 'WITHSCORES')[2]
local reply = ring_after(function()
  local codes, at = {}, 2
  while at <= #ARGV do
    local item, after = next_item(at)
    codes[#codes + 1] = put(item)
    at = after
  end
  return codes
end)
-- Heartbeats say when the next tick is to be made.
local first = redis.call('ZRANGE', series_set(), 0, 0, 'WITHSCORES')[2]
if first and (not before or tonumber(first) < tonumber(before)) then notify_listeners('beat') end
return reply
