-- include names
-- include format

-- What in this database needs format 2, in words.
local function uses_of_format_2()
  local uses = {}
  if partitions > 1 then uses[#uses + 1] = 'partitions' end
  local series = redis.pcall('ZCARD', series_set())
  if type(series) == 'number' and series > 0 then uses[#uses + 1] = 'series' end
  if type(redis.pcall('HGET', ledger_key(), 'nonce')) == 'string' then uses[#uses + 1] = 'a ledger' end
  if moving then uses[#uses + 1] = 'moving' end
  return uses
end
