-- include names
-- include clock
-- include holds
-- include records
-- include format
-- include lane_keys
-- gives read_json, limits_read, limit_of, longest_in, note_longest, AHEAD, change_lane, any_hold, is_hold, is_held
-- gives counted, count_slots, count_queue, append, rests, rate_score, arrival_of, next_start, time_of
-- gives number_of, number_in, look_around
-- gives taken_by, reserved_in, is_closed, hold_before, opening_of
-- when limits

-- The hash `limits` is what the handlers of listeners declared:
--   f <function>   its limits, in the order in which their slots are taken, as JSON:
--                  [[limit, place, parameter, default], ...]; without a key: [[limit], ...]
--                  with `fair`, place, parameter and default of the tenant follow, and of a budget, after three
--                  that are null, those of the cost
--   l <limit>      {"most": 5, "wait": 300000}: ms; a rate {"starts": 80, "every": 60000000, "burst": 20}:
--                  microseconds; a budget {"starts": 2000000, "every": 60000000, "of": "tokens"}, whose burst is all of
--                  its amount if it has none; {} if no handler has it any longer. "ordered": true, "blocks": true (one that failed keeps its
--                  slot), "fair": true
--   p <hold>       while what a hold kept back is let go over a time: the ms at which the next is due, and the ms
--                  between two
--   cursor         how far the sweeps have gone over the lanes, `changed` is there until they have seen all of a change
--   waiting        how far they have gone over the tasks that wait; `changed waiting` is there in the same way
--   numbers        a digest of the numbers that were set, as the sweep before saw them
--   behind         how far claims have looked at due tasks, while many are made to wait: score and id
--   d <word>       there if the declaration with this fingerprint was written
local function read_json(key, field)
  local text = redis.pcall('HGET', key, field)
  if type(text) ~= 'string' then return nil end
  local well, value = pcall(cjson.decode, text)
  return well and type(value) == 'table' and value or nil, text
end

-- The limits that were read, by name and by lane, and those of functions (`f <function>`); false if there is none.
local limits_read = {}

local function number_above_0(value)
  value = tonumber(value or nil)
  return value and value > 0 and value < 2 ^ 53 and value or nil
end

-- Works out a rate, in microseconds: the `interval` of a start, and the `span` of all that may start at once.
local function work_out(limit)
  local starts, every = number_above_0(limit.starts), number_above_0(limit.every)
  limit.interval = starts and every and math.ceil(every / starts)
  if not limit.interval then return end
  limit.starts, limit.every = starts, every
  limit.burst = math.max(number_above_0(limit.burst) or limit.of and starts or 1, 1)
  limit.span = limit.of and math.ceil(limit.burst * every / starts) or limit.burst * limit.interval
end

-- Whether there are holds, and numbers that somebody set: asked for once, and together. Returns the second.
local any_hold
local any_number
local function look_around()
  if any_hold ~= nil then return any_number end
  local both = redis.call('EXISTS', own_key('holds'), own_key('numbers'))
  any_hold = both == 2 or both == 1 and redis.call('EXISTS', own_key('holds')) == 1
  any_number = both == 2 or both == 1 and not any_hold
  return any_number
end

-- What listeners declared of a limit. One that was lost, or that no listener has declared yet, has no slot at all until
-- it is declared; and who has one keeps it: it may be ordered.
local function declared_of(name)
  local limit = read_json(own_key('limits'), 'l ' .. name) or { most = 0, ordered = true, blocks = true }
  -- No set takes NaN as a score: a script that wrote it would stop all claims.
  for field, value in pairs(limit) do
    if tonumber(value) ~= tonumber(value) then limit[field] = nil end
  end
  return limit
end

-- The hash `numbers` has what counts instead of the number that was declared, the `most` of a limit and the `starts` of a
-- rate: its fields are `<limit>`, and `<limit> <value>` for one lane. What is none that the limit can have is ignored.
local MOST_NUMBER, MOST_OF_BUDGET, LONGEST_BURST = 1000000, 1000000000, 100 * 365 * 86400 * 1000000
local function number_of(limit, text)
  local number = type(text) == 'string' and #text <= 10 and string.match(text, '^%d+$') and tonumber(text)
  if not number or number > (limit.of and MOST_OF_BUDGET or MOST_NUMBER) then return nil end
  if limit.ordered and number ~= limit.most then return nil end
  local every = tonumber(limit.every)
  if not every then return tonumber(limit.most) and number or nil end
  -- A rate has at most a start in a microsecond, and makes a burst good within a hundred years.
  if not limit.of and number > every then return nil end
  return number * LONGEST_BURST >= (tonumber(limit.burst) or 0) * every and number or number == 0 and 0 or nil
end

-- The number that somebody set for a lane, for all lanes of its limit, and what was declared; nil if that counts.
local function number_in(lane)
  if not look_around() then return nil end
  local name = string.match(lane, '^[^=]*')
  local limit, own = declared_of(name), nil
  if #lane > #name then
    own = number_of(limit, redis.pcall('HGET', own_key('numbers'), name .. ' ' .. string.sub(lane, #name + 2)))
  end
  return own or number_of(limit, redis.pcall('HGET', own_key('numbers'), name)), limit
end

-- The numbers of the limit of a lane, which all of its lanes share that have none of their own; nil if no handler has it
-- any longer.
local function limit_of(lane)
  if limits_read[lane] == nil then
    local name = string.match(lane, '^[^=]*')
    local number, limit = number_in(lane)
    if number or limits_read[name] == nil then
      limit = limit or declared_of(name)
      if number and limit.every then
        limit.starts = number
        -- Of a rate of nothing none starts: its lanes have no slot.
        if number == 0 then limit.most, limit.of = 0, nil end
      elseif number then
        limit.most = number
      end
      work_out(limit)
      limits_read[number and lane or name] = (tonumber(limit.most) or limit.interval) and limit or false
    end
    if limits_read[lane] == nil then limits_read[lane] = limits_read[name] end
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
local function change_lane(command, key, ...) return or_put_aside(key, command, key, ...) end

-- True for the lane in which the tasks wait that a hold keeps back.
local function is_hold(lane) return string.sub(lane, 1, #HOLD) == HOLD end

-- By field of the hash `holds`, whether it holds.
local holds_read = {}

local function is_held(field)
  look_around()
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
local counted = { slots = {}, queue = {}, reserved = {}, granted = {}, pace = {} }
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

local function rate_score(name) return tonumber(redis.pcall('ZSCORE', own_key('rates'), name) or nil) or 0 end

-- True while nothing at all may start in the lane of a rate, since it rests, for longer than `by` microseconds. Second,
-- the arrival that follows from the rest: afterwards tasks start at the rate of today, and nothing of a burst is left; 0
-- if it did not rest.
local function rests(lane, by)
  local limit, rest = limit_of(lane), rate_score('rest ' .. lane)
  if rest == 0 or not limit or not limit.interval then return false, 0 end
  return rest > now_us + (by or 0), rest + limit.span - limit.interval
end

-- The microsecond at which all starts of a rate are made good, GCRA's theoretical arrival time. It is never more than
-- the burst ahead, but while the lane rests. It was further ahead if the rate was raised, or the clock went back; that is
-- written once, or each look would put the next start off again.
local function arrival_of(lane, limit)
  local arrival, latest = math.max(rate_score(lane), now_us), now_us + limit.span
  if arrival > latest then
    arrival = latest
    change_lane('ZADD', own_key('rates'), string.format('%.0f', latest), lane)
  end
  local _, after_rest = rests(lane)
  return math.max(arrival, after_rest)
end

-- The microseconds that a start takes of a rate, or a cost of a budget. What nobody can read counts as all of it.
local function time_of(limit, cost)
  if not limit.of then return limit.interval end
  return math.ceil(math.min(cost or limit.burst, limit.burst) * limit.every / limit.starts)
end

-- The microsecond at which a start of a rate may be that takes so many, behind others that have reserved theirs.
local function next_start(lane, limit, takes, before)
  -- What costs nothing starts no sooner in a lane that rests.
  if takes < limit.interval and rests(lane) then takes = limit.interval end
  return math.max(now_us, arrival_of(lane, limit) + before + takes - limit.span)
end

-- The microseconds that a task takes of a rate in whose lane it waits, or has reserved a start. Its field `lanes` has a
-- line for each limit: the lane, the tenant and the cost; see lane_names.lua.
local function taken_by(id, lane, limit)
  if not limit.of then return limit.interval end
  local text = id and redis.pcall('HGET', record_key(id), 'lanes')
  text = type(text) == 'string' and text or ''
  local _, behind = string.find(text, '\n' .. lane .. '\t', 1, true)
  return time_of(limit, tonumber(behind and string.match(text, '^[^\t\n]*\t(%d+)', behind + 1) or nil))
end

-- The microseconds of a rate that its lane's members have reserved, who were granted a start.
local MOST_RESERVED = 20
local function reserved_in(lane, limit)
  if not limit.of then return count_slots(lane) * limit.interval end
  local sum = counted.reserved[lane]
  if sum then return sum end
  sum = 0
  for _, id in ipairs(change_lane('SRANDMEMBER', lane_key(lane), 5 * MOST_RESERVED)) do
    sum = sum + taken_by(id, lane, limit)
  end
  counted.reserved[lane] = sum
  return sum
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

-- True if one that was granted a start of a rate has not been claimed yet: then the lane is looked at again. Others of its
-- members wait elsewhere, or were granted something there: the last of their slots.
local function awaits_start(lane)
  if counted.granted[lane] then return true end
  local ids = count_slots(lane) > 0 and change_lane('SRANDMEMBER', lane_key(lane), MOST_RESERVED) or NONE
  for i, score in ipairs(ids[1] and change_lane('ZMSCORE', own_key('grants'), unpack(ids)) or NONE) do
    local slots = score and redis.pcall('HGET', record_key(ids[i]), 'slots')
    if type(slots) == 'string' and (string.match(slots, '^.*\n(.*)') or slots) == lane then return true end
  end
  return false
end

-- The ms from which the next task may have a slot in a lane, which is the first that waits, or `id`; nil if there is none.
local function opening_of(lane, id)
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
  if not limit.interval then return granted < (tonumber(limit.most) or 0) and now or nil end
  if limit.of then
    if granted >= MOST_RESERVED then return nil end
    id = id or change_lane('ZRANGE', queue_key(lane), 0, 0)[1]
  end
  local start = math.ceil(next_start(lane, limit, taken_by(id, lane, limit), reserved_in(lane, limit)) / 1000)
  return (start <= now + AHEAD or not awaits_start(lane)) and start or nil
end
