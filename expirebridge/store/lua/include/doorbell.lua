-- include names

-- Tells listeners to look: at a time, or for a beat. Databases share channels, so this one's number is
-- in the name. Where ARGV[1] is '', listeners left it in `meta`, if there were any.
local function tell_listeners(message)
  local database = ARGV[1]
  if database == '' then database = redis.pcall('HGET', meta_key, 'database') end
  if type(database) == 'string' then
    redis.call('PUBLISH', prefix .. ':doorbell:' .. database, message)
  end
end
