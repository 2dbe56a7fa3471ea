-- include names

-- A call whose reply was lost is sent again. If the record has its nonce, it was done before, and gets
-- the same answer. Without a nonce, '', a resend is not recognized.
local function answered(record, nonce)
  for code, known in string.gmatch(record and record.nonce or '', '(%d+):(%S+)') do
    if known == nonce then return tonumber(code) end
  end
end

-- Others may change the task before the resend arrives, so the two calls before this one, which
-- `record` holds, are kept. More would cost memory: a value does from 65 bytes on.
local function remember(id, record, nonce, code)
  if nonce == '' then return end
  local before = string.match(record and record.nonce or '', '^%S* ?%S*')
  if before ~= '' then before = ' ' .. before end
  redis.call('HSET', record_key(id), 'nonce', code .. ':' .. nonce .. before)
end
