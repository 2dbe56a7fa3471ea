-- include names
-- include format
-- include clock
-- include limits
-- include records
-- include hooks
-- include lane_keys
-- gives touched, gone, join_queue, leave_tenant, leave_queue, write_leaving, KEEPS, drop_slots, leave_lanes, is_granted
-- when limits
-- on on_move 20 leave_or_keep
-- on on_forget 20 leave_all
-- on on_give_up 20 leave_all
-- on on_let_go 20 leave_all_but_ordered
-- on held_fields 20 HELD_FIELDS
-- on on_renew 20 renew_slots
-- on keyless 20 is_granted

-- A lane is one value of a limit: `sms=17`. Its set holds the ids that have a slot in it: those that run, and those
-- that were granted one and are pending. Its queue, a sorted set, holds those that wait, by due time. Where a task
-- stands is in its record, too: `slots` are its lanes, one a line, `queue` the lane in which it waits.
--
-- A slot is written before a task's new place, and removed after it: a script that is interrupted leaves one slot too
-- many, never one too few.

-- The lanes that this script has changed: `serve_freed` looks at them in the end. And by lane, the ids that have left
-- it, or its queue, and are removed then.
local touched, gone = {}, { lane = {}, queue = {} }

-- A limit may be fair: then those that wait are in a queue for each tenant, too, and the tenants take turns. The sorted
-- set `turns` has the virtual start of each tenant that waits. `shares` has that of the latest grant, under '\n', which
-- no tenant has as its name, and of tenants that do not wait now, but have had more than their share: those are
-- forgotten when it has passed them.
--
-- Of what waits on hold, the `tenant` is its ordered lane, if it has one. The sorted set `order:<lane>` has the holds and
-- ids of these, as `<hold>\n<id>`, all with one score: until a hold that is over has let them go, they come first.

-- Puts a task into its tenant's queue, and the tenant into line if it is the first.
local function join_queue(id, lane, tenant, due)
  if is_hold(lane) then return change_lane('ZADD', order_key(tenant), 0, lane .. '\n' .. id) end
  change_lane('ZADD', tenant_key(lane, tenant), due, id)
  if change_lane('ZSCORE', turns_key(lane), tenant) then return end
  local latest, own = change_lane('ZSCORE', shares_key(lane), '\n'), change_lane('ZSCORE', shares_key(lane), tenant)
  local start = math.max(tonumber(latest or nil) or 0, tonumber(own or nil) or 0)
  redis.call('ZADD', turns_key(lane), string.format('%.17g', start), tenant)
end

-- Takes an id out of its tenant's queue, and the tenant out of line if it was the last.
local function leave_tenant(lane, tenant, id)
  if is_hold(lane) then return change_lane('ZREM', order_key(tenant), lane .. '\n' .. id) end
  local queue = tenant_key(lane, tenant)
  change_lane('ZREM', queue, id)
  if redis.call('EXISTS', queue) == 1 then return end
  local start = change_lane('ZSCORE', turns_key(lane), tenant)
  change_lane('ZREM', turns_key(lane), tenant)
  if start then change_lane('ZADD', shares_key(lane), start, tenant) end
end

-- Takes tasks out of the queue of a lane.
local function leave_queue(lane, ids)
  change_lane('ZREM', queue_key(lane), unpack(ids))
  redis.call('ZREM', own_key('waits'), unpack(ids))
  counted.queue[lane] = nil
end

-- Removes from lanes what has left them.
local function write_leaving()
  for lane, ids in pairs(gone.lane) do
    change_lane('SREM', lane_key(lane), unpack(ids))
    counted.slots[lane], counted.reserved[lane] = nil, nil
  end
  for lane, ids in pairs(gone.queue) do leave_queue(lane, ids) end
  gone = { lane = {}, queue = {} }
end

-- Takes a task out of those lanes of which this is true. True if it has slots in others.
local function drop_slots(id, slots, is_left)
  local rest = {}
  for lane in string.gmatch(slots, '[^\n]+') do
    if is_left(lane) then
      append(gone.lane, lane, id)
      touched[lane] = true
    else
      rest[#rest + 1] = lane
    end
  end
  if rest[1] then
    redis.call('HSET', record_key(id), 'slots', table.concat(rest, '\n'))
  else
    redis.call('HDEL', record_key(id), 'slots')
  end
  return rest[1] ~= nil
end

-- Which slots a task keeps that stops running, or being due: `ordered` those in ordered lanes, if it has begun;
-- `blocking` those of a failed one that lets nobody pass.
local KEEPS = {
  ordered = function(limit, started) return limit.ordered and started end,
  blocking = function(limit) return limit.blocks end,
}

-- Takes a task out of all lanes, but for those that it keeps. This is called for each change of a task's place, after
-- the new place was written, and before its record is deleted.
local function leave_lanes(id, kept)
  local known = redis.pcall('HMGET', record_key(id), 'slots', 'queue', 'started', 'tenant')
  if known.err or not known[1] and not known[2] then return end
  local rest = {}
  for lane in string.gmatch(known[1] or '', '[^\n]+') do
    if kept and KEEPS[kept](limit_of(lane) or {}, known[3]) then
      rest[#rest + 1] = lane
    else
      append(gone.lane, lane, id)
    end
    touched[lane] = true
  end
  if known[1] then redis.call('ZREM', own_key('grants'), id) end
  if known[2] then
    append(gone.queue, known[2], id)
    if known[4] then
      leave_tenant(known[2], known[4], id)
      -- Those of its ordered lane waited for a hold that is over to let it go.
      if is_hold(known[2]) then touched[known[4]] = true end
    end
    touched[known[2]] = true
  end
  redis.call('HDEL', record_key(id), 'slots', 'queue', 'parked', 'tenant', 'turn', 'lanes')
  if rest[1] then redis.call('HSET', record_key(id), 'slots', table.concat(rest, '\n')) end
end

-- A task that is due again at once keeps its slots, as if they had just been granted.
local function keep_slots(id)
  if redis.call('HEXISTS', record_key(id), 'slots') == 1 then redis.call('ZADD', own_key('grants'), now, id) end
end

-- True if a task was due, and is pending with a slot that it was granted. One that keeps its slot of an ordered lane
-- for a retry was not granted it.
local function is_granted(id) return redis.call('ZSCORE', own_key('grants'), id) end

-- Takes a task that is about to be forgotten, or starts anew, out of all lanes.
local function leave_all(id) leave_lanes(id) end

local function leave_all_but_ordered(id) leave_lanes(id, 'ordered') end

-- A task that was moved leaves its lanes, but for the slots that it keeps.
local function leave_or_keep(id, _, before, state, look_at)
  if state == 'running' then return end
  if state == 'pending' and look_at <= now and before ~= 'waiting' then
    keep_slots(id)
  else
    leave_lanes(id, state == 'failed' and 'blocking' or not FINISHED[state] and 'ordered')
  end
end

local HELD_FIELDS = { 'slots' }

-- Puts a task that is held into its lanes, from which another client may have taken it.
local function renew_slots(id, record)
  for lane in string.gmatch(record.slots or '', '[^\n]+') do change_lane('SADD', lane_key(lane), id) end
end
