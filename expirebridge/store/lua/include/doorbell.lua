-- include names

-- Tells listeners to look: at a time, or for a beat. All databases of a server share its channels, so
-- this one's number is in the name. Where ARGV[1] is '', listeners have left it in `meta`, or none was
-- ever here.
local function tell_listeners(message)
  local database = ARGV[1]
  if database == '' then database = redis.pcall('HGET', meta_key, 'database') end
  if type(database) == 'string' then
    redis.call('PUBLISH', prefix .. ':doorbell:' .. database, message)
  end
end
