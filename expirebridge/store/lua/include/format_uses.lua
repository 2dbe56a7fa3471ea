-- include names

-- What in this database needs format 2, in words.
local function uses_of_format_2()
  local uses = {}
  local partitions = redis.pcall('HGET', meta_key, 'partitions')
  if type(partitions) == 'string' and (tonumber(partitions) or 1) > 1 then
    uses[#uses + 1] = 'partitions'
  end
  local series = redis.pcall('ZCARD', series_set())
  if type(series) == 'number' and series > 0 then uses[#uses + 1] = 'series' end
  return uses
end
