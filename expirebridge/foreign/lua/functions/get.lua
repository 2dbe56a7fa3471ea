-- expirebridge_get 1 <prefix> <id>
--
-- Reads a task.
--
-- returns  nil, or names and values: id, key, state, due (in ms), func, args (JSON), and those
--          that it has of made, attempt, tags, retry, timeout, started, ended, result, error, lapses,
--          snoozes, on_signal, signal, signalled, lost, urgent
local SHOWN = { made = true, attempt = true, tags = true, retry = true, timeout = true,
  started = true, ended = true, result = true, error = true, lapses = true,
  snoozes = true, on_signal = true, signal = true, signalled = true, lost = true,
  urgent = true }

local function read_arguments(given, usage)
  check_count(given, 1, 1, usage)
  return { '', check_id(given[1]) }
end

local function tell(view)
  if not view then return false end
  local fields, record = view[5], {}
  for i = 1, #fields, 2 do record[fields[i]] = fields[i + 1] end
  local func, args = string.match(record.call, '^([^?]*)%??(.*)')
  local reply = { 'id', view[1], 'key', view[2], 'state', view[3], 'due', view[4], 'func', func,
    'args', record.args or args }
  for i = 1, #fields, 2 do
    if SHOWN[fields[i]] then
      reply[#reply + 1] = fields[i]
      reply[#reply + 1] = fields[i + 1]
    end
  end
  return reply
end
