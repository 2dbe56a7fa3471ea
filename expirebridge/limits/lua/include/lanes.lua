-- include names
-- include format
-- include clock
-- include limits
-- gives touched, gone, join_queue, leave_tenant, leave_queue, write_leaving, KEEPS, free_slots, leave_lanes
-- gives keep_slots, is_granted
-- when limits

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
  redis.call('ZREM', waits_key(), unpack(ids))
  counted.queue[lane] = nil
end

-- Removes from lanes what has left them.
local function write_leaving()
  for lane, ids in pairs(gone.lane) do
    change_lane('SREM', lane_key(lane), unpack(ids))
    counted.slots[lane] = nil
  end
  for lane, ids in pairs(gone.queue) do leave_queue(lane, ids) end
  gone = { lane = {}, queue = {} }
end

-- Which slots a task keeps that stops running, or being due: `ordered` those in ordered lanes, if it has begun;
-- `blocking` those of a failed one that lets nobody pass.
local KEEPS = {
  ordered = function(limit, started) return limit.ordered and started end,
  blocking = function(limit) return limit.blocks end,
}

-- Takes tasks that have run out of all lanes. Each is an id, and third the lanes that its record names, or nil.
local function free_slots(tasks)
  for _, task in ipairs(tasks) do
    local id, _, slots = unpack(task, 1, 3)
    for lane in string.gmatch(slots or '', '[^\n]+') do
      append(gone.lane, lane, id)
      touched[lane] = true
    end
    if slots then redis.call('HDEL', record_key(id), 'slots', 'tenant') end
  end
end

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
  if known[1] then redis.call('ZREM', grants_key(), id) end
  if known[2] then
    append(gone.queue, known[2], id)
    if known[4] then
      leave_tenant(known[2], known[4], id)
      -- Those of its ordered lane waited for a hold that is over to let it go.
      if is_hold(known[2]) then touched[known[4]] = true end
    end
    touched[known[2]] = true
  end
  redis.call('HDEL', record_key(id), 'slots', 'queue', 'parked', 'tenant', 'turn')
  if rest[1] then redis.call('HSET', record_key(id), 'slots', table.concat(rest, '\n')) end
end

-- A task that is due again at once keeps its slots, as if they had just been granted.
local function keep_slots(id)
  if redis.call('HEXISTS', record_key(id), 'slots') == 1 then redis.call('ZADD', grants_key(), now, id) end
end

-- True if a task was due, and is pending with a slot that it was granted. One that keeps its slot of an ordered lane
-- for a retry was not granted it.
local function is_granted(id) return redis.call('ZSCORE', grants_key(), id) end
