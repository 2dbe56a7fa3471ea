-- include clock
-- include format
-- include hooks
-- include names
-- include records
-- include groups
-- when groups
-- on on_sweep 30 forget_groups
-- on on_swept 30 find_stopping

-- The sweep's part in groups.
local STOPPED_AT_ONCE = 10

-- Forgets groups that ended long ago.
local function forget_groups(most)
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', state_set('groups'), '-inf', now, 'LIMIT', 0, most)) do
    redis.call('DEL', group_key(name), group_key(name, '@members'))
    redis.call('ZREM', state_set('groups'), name)
  end
end

-- Cancelled groups of which members are to be cancelled, without those that another client overwrote, or put there.
local function find_stopping(swept)
  local found = {}
  for _, name in ipairs(redis.call('ZRANGE', state_set('stopping'), 0, STOPPED_AT_ONCE - 1)) do
    if is_id(name) and type(redis.pcall('HGET', group_key(name), 'stopped')) == 'string' then
      found[#found + 1] = name
    else
      redis.call('ZREM', state_set('stopping'), name)
    end
  end
  swept.stopping = found
end
