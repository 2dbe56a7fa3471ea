-- expirebridge_get_group 1 <prefix> <name>
--
-- Reads a group.
--
-- returns  nil, or names and values: name, state ('open', 'closed', 'ended' or 'cancelled'), total, left, succeeded,
--          failed, cancelled, on_failed, made, and those that it has of then, ended, stopped

local function read_arguments(given, usage)
  check_count(given, 1, 1, usage)
  return { '', check_group(given[1]) }
end

local function tell(fields, argv)
  if not fields[1] then return false end
  local group = {}
  for i = 1, #fields, 2 do group[fields[i]] = fields[i + 1] end
  local state = group.stopped and 'cancelled' or group.ended and 'ended' or group.closed and 'closed' or 'open'
  local total = 0
  for _, name in ipairs({ 'left', 'succeeded', 'cancelled', group.on_failed ~= 'wait' and 'failed' or nil }) do
    total = total + (tonumber(group[name]) or 0)
  end
  local reply = { 'name', argv[2], 'state', state, 'total', string.format('%.0f', total) }
  for _, name in ipairs({ 'left', 'succeeded', 'failed', 'cancelled', 'on_failed', 'made', 'then', 'ended', 'stopped' }) do
    if group[name] then
      reply[#reply + 1] = name
      reply[#reply + 1] = group[name]
    end
  end
  return reply
end
