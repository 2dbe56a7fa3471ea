-- include names

-- Where the listeners of a database of this number hear of its tasks.
local function doorbell_channel(database) return prefix .. ':doorbell:' .. database end

-- Makes listeners look at a time, or beat. Databases share channels, so the channel's name has the
-- database's number. If ARGV[1] is '', `meta` has it, once a listener has been there.
local function tell_listeners(message)
  local database = ARGV[1]
  if database == '' then database = redis.pcall('HGET', meta_key, 'database') end
  -- With several partitions, their number follows.
  if slot ~= '' and type(database) == 'string' then database = string.match(database, '^%d*') end
  if type(database) == 'string' then
    redis.call('PUBLISH', doorbell_channel(database), message)
  end
end
