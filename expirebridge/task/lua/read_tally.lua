-- flags: no-writes
-- Reads the outcomes and the lateness of attempts over the last minutes.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 how many spans, 3 minutes of a span, 4 latest spans to skip
-- returns  the minute since 1970 at which the first of these spans begins, then for each span, the latest
--          first, {field, count, ...}, whose fields are those of `tally`
--
-- A span begins at a minute that is a multiple of its length; the last has not ended.

-- include names
-- include format
-- include clock

local spans, length, skipped = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local last = (math.floor(now / 60000 / length) - skipped) * length
local reply = { last }
for span = 0, spans - 1 do
  local sums = {}
  for minute = last - span * length, last - span * length + length - 1 do
    local counts = redis.pcall('HGETALL', minute_key(minute))
    for i = 1, #counts, 2 do
      sums[counts[i]] = (sums[counts[i]] or 0) + (tonumber(counts[i + 1]) or 0)
    end
  end
  local row = {}
  for field, count in pairs(sums) do
    row[#row + 1] = field
    row[#row + 1] = count
  end
  reply[#reply + 1] = row
end
return reply
