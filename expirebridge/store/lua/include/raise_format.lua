-- include names
-- include format
-- include mark_format
-- include silent

-- Raises the format to 2, so that older code refuses the database from now on. A script calls this
-- before it writes, for the first time, anything that older code would overlook. Its caller's lease is
-- in ms. Returns the error to reply with if a listener beats that knows only format 1, else nil.
local function raise_format(lease)
  if (tonumber(written) or 1) >= 2 then return nil end
  local silent = silent_listeners(lease)
  if silent[1] then
    return redis.error_reply('EXPIREBRIDGE_OLDER_LISTENERS ' .. table.concat(silent, ' '))
  end
  mark_format()
  redis.call('HSET', meta_key, 'format', 2)
  return nil
end
