-- gives prefix, hash_tag, listeners_key, meta_key, state_set, record_key, tag_set, minute_key, actions_key, fleet_key
-- gives code_key, broken_key, or_put_aside, trigger_key
-- gives own_key, is_ours, has_hash_tag

-- The names of every key. All derive from KEYS[1], the prefix, whose leading hash tag {...}, if it has one,
-- puts the trigger keys into the same slot of a cluster.
local prefix = KEYS[1]
local hash_tag = string.match(prefix, '^{[^{}]*}') or ''
local listeners_key = prefix .. ':listeners'
local meta_key = prefix .. ':meta'

-- The set of a state, or another one with times.
local function state_set(state) return prefix .. ':' .. state end
local function record_key(id) return prefix .. ':task:' .. id end
local function tag_set(tag) return prefix .. ':tag:' .. tag end
local function minute_key(minute) return string.format('%s:minute:%.0f', prefix, minute) end
local function actions_key() return prefix .. ':actions' end
local function fleet_key() return prefix .. ':fleet' end
local function code_key(fingerprint) return prefix .. ':code:' .. fingerprint end

-- The new name of a key of ours that another client has overwritten.
local function broken_key(name) return prefix .. ':broken:' .. name end

-- A command for a key of ours. If another client has overwritten it with something else, that is put aside, under a name.
local function or_put_aside(name, command, key, ...)
  local result = redis.pcall(command, key, ...)
  if type(result) == 'table' and result.err then
    if not string.find(result.err, 'WRONGTYPE', 1, true) then return redis.call(command, key, ...) end
    redis.call('RENAME', key, broken_key(name))
    result = redis.call(command, key, ...)
  end
  return result
end

local function trigger_key(id, record)
  return record.key or (hash_tag .. id .. ':?' .. record.call)
end

-- The names of all keys but trigger keys.
local function own_key(name) return prefix .. ':' .. name end
local function is_ours(name) return string.sub(name, 1, #prefix + 1) == prefix .. ':' end

-- True if a key can belong to this partition. With a hash tag, keys with other ones belong to other partitions, and no
-- script may use them: they may be on another node.
local function has_hash_tag(name) return string.sub(name, 1, #hash_tag) == hash_tag end
