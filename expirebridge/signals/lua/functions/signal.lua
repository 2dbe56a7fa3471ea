-- expirebridge_signal 1 <prefix> <id> [<payload>] [<by>]
--
-- Says that what a task waits for has come: it runs its `on_signal`, now. The same signal again has the first answer.
--
-- returns  'signalled', 'signalled before' (another signal has decided), 'running', 'finished', 'begun' (its deadline has
--          decided: an attempt was made), 'not awaited' (it has no `on_signal`), 'of a ledger' (its row decides),
--          'not found' or 'elsewhere'
local MAX_PAYLOAD, MAX_BY = 65536, 200
local DECIDED = { [10] = 'signalled before', [11] = 'begun', [12] = 'not awaited', [13] = 'of a ledger' }

local function check_payload(payload)
  if #payload > MAX_PAYLOAD then refuse('payload: ' .. #payload .. ' bytes; at most ' .. MAX_PAYLOAD) end
  check_json('payload', payload)
  return payload
end

local function check_by(by)
  local _, characters = string.gsub(by, '[^\128-\191]', '')
  if not is_utf8(by) or characters > MAX_BY or string.find(by, '[%c\127]') then
    refuse('by=' .. short(by) .. ': write at most ' .. MAX_BY .. ' printable characters')
  end
  return by
end

local function read_arguments(given, usage)
  check_count(given, 1, 3, usage)
  return { '', '', check_id(given[1]), '', check_by(given[3] or ''), check_payload(given[2] or 'null') }
end

local function tell(code) return DECIDED[code] or changed(code, 'signalled') end
