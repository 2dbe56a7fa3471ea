-- include names
-- include clock
-- include holds
-- include records
-- include format
-- include lane_keys
-- gives read_json, limits_read, limit_of, longest_in, note_longest, AHEAD, change_lane, any_hold, is_hold, is_held
-- gives counted, count_slots, count_queue, append, burst_of, rest_of, rate_score, arrival_of, next_start, is_closed
-- gives hold_before, opening_of
-- when limits

-- The hash `limits` is what the handlers of listeners declared:
--   f <function>   its limits, in the order in which their slots are taken, as JSON:
--                  [[limit, place, parameter, default], ...]; without a key: [[limit], ...]
--                  with `fair`, place, parameter and default of the tenant follow
--   l <limit>      {"most": 5, "wait": 300000}, or a rate {"interval": 600000, "burst": 20}: ms, microseconds;
--                  {} if no handler has it any longer. "ordered": true, "blocks": true (one that failed keeps its
--                  slot), "fair": true
--   p <hold>       while what a hold kept back is let go over a time: the ms at which the next is due, and the ms
--                  between two
--   cursor         how far the sweeps have gone over the lanes, `changed` is there until they have seen all of a change
--   waiting        how far they have gone over the tasks that wait; `changed waiting` is there in the same way
--   behind         how far claims have looked at due tasks, while many are made to wait: score and id
--   d <word>       there if the declaration with this fingerprint was written
local function read_json(key, field)
  local text = redis.pcall('HGET', key, field)
  if type(text) ~= 'string' then return nil end
  local well, value = pcall(cjson.decode, text)
  return well and type(value) == 'table' and value or nil
end

-- The limits that were read, by name and by lane, and those of functions (`f <function>`); false if there is none.
local limits_read = {}

-- The numbers of the limit of a lane; nil if no handler has it any longer. One that was lost, or that no listener has
-- declared yet, has no slot at all until it is declared; and who has one keeps it: it may be ordered.
local function limit_of(lane)
  if limits_read[lane] == nil then
    local name = string.match(lane, '^[^=]*')
    if limits_read[name] == nil then
      local limit = read_json(own_key('limits'), 'l ' .. name) or { most = 0, ordered = true, blocks = true }
      -- No set takes NaN as a score: a script that wrote it would stop all claims.
      for field, value in pairs(limit) do
        if tonumber(value) ~= tonumber(value) then limit[field] = nil end
      end
      -- A rate of nothing is none.
      if (tonumber(limit.interval) or 1) <= 0 then limit.interval = nil end
      limits_read[name] = (tonumber(limit.most) or tonumber(limit.interval)) and limit or false
    end
    limits_read[lane] = limits_read[name]
  end
  return limits_read[lane] or nil
end

-- The ms after which a task has waited too long in a lane, or nil.
local function longest_in(lane)
  local limit = limit_of(lane)
  return limit and tonumber(limit.wait)
end

-- Notes when tasks that wait in a lane from now on have waited too long. Each follows its place in the queue.
local function note_longest(lane, places)
  local longest = longest_in(lane)
  if not longest then return end
  local times = {}
  for i = 2, #places, 2 do times[i - 1], times[i] = now + longest, places[i] end
  redis.call('ZADD', own_key('waits'), unpack(times))
end

-- The ms ahead for which starts of a rate are granted.
local AHEAD = 100

-- A command for a key of a lane. If another client overwrote the key, it is put aside.
local function change_lane(command, key, ...)
  local result = redis.pcall(command, key, ...)
  if type(result) == 'table' and result.err then
    if not string.find(result.err, 'WRONGTYPE', 1, true) then return redis.call(command, key, ...) end
    redis.call('RENAME', key, broken_key(key))
    result = redis.call(command, key, ...)
  end
  return result
end

local any_hold

-- True for the lane in which the tasks wait that a hold keeps back.
local function is_hold(lane) return string.sub(lane, 1, #HOLD) == HOLD end

-- By field of the hash `holds`, whether it holds.
local holds_read = {}

local function is_held(field)
  if any_hold == nil then any_hold = redis.call('EXISTS', own_key('holds')) == 1 end
  if not any_hold then return false end
  if holds_read[field] == nil then
    local value = redis.pcall('HGET', own_key('holds'), field)
    local ends = type(value) == 'string' and end_of_hold(value)
    holds_read[field] = type(value) == 'string' and (not ends or ends > now)
  end
  return holds_read[field]
end

-- Number of ids with a slot in a lane, and of those that wait in it. A script counts once, and adds to these numbers
-- what it decides: it is written later, since one command for many costs far less than one for each.
local counted = { slots = {}, queue = {}, pace = {} }
local function count_slots(lane)
  counted.slots[lane] = counted.slots[lane] or change_lane('SCARD', lane_key(lane))
  return counted.slots[lane]
end
local function count_queue(lane)
  counted.queue[lane] = counted.queue[lane] or change_lane('ZCARD', queue_key(lane))
  return counted.queue[lane]
end

-- Adds one value, or two, to one of the lists of a table; one that is its last already is not added again.
local function append(lists, name, value, second)
  local list = lists[name]
  if list and not second and list[#list] == value then return end
  if list then
    list[#list + 1] = value
  else
    list = { value }
    lists[name] = list
  end
  if second then list[#list + 1] = second end
end

local function burst_of(limit) return math.max(tonumber(limit.burst) or 1, 1) end

-- A lane of a rate that rests has a second place in `rates`, under this name.
local function rest_of(lane) return 'rest ' .. lane end

local function rate_score(name) return tonumber(redis.pcall('ZSCORE', own_key('rates'), name) or nil) or 0 end

-- The microsecond at which all starts of a rate are made good, GCRA's theoretical arrival time. It is never more than
-- the burst ahead, but while the lane rests. It was further ahead if the rate was raised, or the clock went back; that is
-- written once, or each look would put the next start off again.
local function arrival_of(lane, limit)
  local arrival, latest = math.max(rate_score(lane), now_us), now_us + burst_of(limit) * limit.interval
  if arrival > latest then
    arrival = latest
    change_lane('ZADD', own_key('rates'), string.format('%.0f', latest), lane)
  end
  return math.max(arrival, rate_score(rest_of(lane)))
end

-- The microsecond at which the next start of a rate may be, if so many were granted before.
local function next_start(lane, limit, granted)
  return math.max(now_us, arrival_of(lane, limit) + (granted - burst_of(limit) + 1) * limit.interval)
end

-- True while no task begins in a lane that is ordered: this database is moved to another one, or from one in which some
-- that have begun may still run: see docs/adr/0042-moving-and-importing.md. A tick goes on where its series is: `tick` is that field of the
-- task that would begin; without it, this is about the first that waits.
local function is_closed(lane, tick)
  if counted.closed == nil then
    counted.closed = moving and (string.sub(moving, 1, 3) == 'to '
      or redis.pcall('HEXISTS', own_key('arrivals'), 'closed') == 1) or false
  end
  if not counted.closed then return false end
  if tick == nil then
    local id = change_lane('ZRANGE', queue_key(lane), 0, 0)[1]
    tick = id and redis.pcall('HGET', record_key(id), 'tick')
  end
  return type(tick) ~= 'string'
end

-- The hold that is over, and has tasks of an ordered lane that it has not let go yet; or nil.
local function hold_before(lane)
  local from = '-'
  repeat
    local first = change_lane('ZRANGE', order_key(lane), from, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
    local hold = first and string.match(first, '^[^\n]*')
    if not hold then return nil end
    if is_hold(hold) and not is_held(string.sub(hold, #HOLD + 1)) and count_queue(hold) > 0 then return hold end
    from = '(' .. hold .. '\n\255'
  until false
end

-- The ms from which the next task may have a slot in a lane; nil if there is none.
local function opening_of(lane)
  if is_hold(lane) then
    if is_held(string.sub(lane, #HOLD + 1)) then return nil end
    local pace = counted.pace[lane]
    if pace == nil then
      local text = redis.pcall('HGET', own_key('limits'), 'p ' .. lane)
      local at, each = string.match(type(text) == 'string' and text or '', '^(%S+) (%S+)$')
      at, each = number_up_to(2 ^ 53, at), number_up_to(2 ^ 53, each)
      pace = at and each and { at = at, each = each } or false
      counted.pace[lane] = pace
    end
    -- Another client may have written any number.
    return pace and pace.at < 2 ^ 53 and math.max(math.floor(pace.at), now) or now
  end
  local limit = limit_of(lane)
  if not limit then return now end
  if limit.ordered and (is_closed(lane) or hold_before(lane)) then return nil end
  local granted = count_slots(lane)
  if not tonumber(limit.interval) then return granted < (tonumber(limit.most) or 0) and now or nil end
  local start = math.ceil(next_start(lane, limit, granted) / 1000)
  return (granted == 0 or start <= now + AHEAD) and start or nil
end
