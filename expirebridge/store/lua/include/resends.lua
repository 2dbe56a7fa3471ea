-- include names

-- A call whose reply was lost is sent again. Its nonce in the record says that it was done before; it
-- is then answered as the first time. Without a nonce, '', no resend is known.
local function answered(record, nonce)
  for code, known in string.gmatch(record and record.nonce or '', '(%d+):(%S+)') do
    if known == nonce then return tonumber(code) end
  end
end

-- Others may change the task before the resend arrives, so the two calls before this one, which
-- `record` holds, stay known. More would cost memory: from 65 bytes on, a value does.
local function remember(id, record, nonce, code)
  if nonce == '' then return end
  local before = string.match(record and record.nonce or '', '^%S* ?%S*')
  if before ~= '' then before = ' ' .. before end
  redis.call('HSET', record_key(id), 'nonce', code .. ':' .. nonce .. before)
end
