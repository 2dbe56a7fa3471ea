-- A call whose reply was lost is sent again. Its nonce in the record says that it was done before; it
-- is then answered as the first time.
local function answered(record, nonce)
  local code, last = string.match(record and record.nonce or '', '^(%d+):(.*)$')
  return last == nonce and tonumber(code) or nil
end

local function remember(id, nonce, code)
  redis.call('HSET', record_key(id), 'nonce', code .. ':' .. nonce)
end
