-- flags: (none: refused whole when memory is full)
-- Records the series that a listener's handlers declare, and returns which of them it must put.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 listener, 3 lease in ms, then id and fingerprint of each declaration
-- returns  now, then for each: 1 it is stored so, 2 put it, 3 another declaration of it counts,
--          4 a producer has scheduled a series of that id; and the stored fingerprint, or ''.
--          While the database is moved, 3 for a series that is not here: the other one has it
--
-- Of several declarations of a series, the one whose first sight is latest counts.

-- include names
-- include format
-- include clock
-- include series
-- include series_keys

local STANDS, PUT, OTHERS, SCHEDULED = 1, 2, 3, 4

local function write_declarations()
  local words = { '' }
  for at = 4, #ARGV, 2 do words[#words + 1] = ARGV[at] .. '=' .. ARGV[at + 1] end
  words[#words + 1] = ''
  local text = table.concat(words, ' ')
  if redis.pcall('HGET', declarations_key(), ARGV[2]) ~= text then
    redis.call('HSET', declarations_key(), ARGV[2], text)
  end
end

-- The fingerprint that counts, and the text of all that are declared.
local function latest_seen(seen, declared, mine)
  local latest, time, words, known = nil, -1, {}, false
  for word in string.gmatch(seen or '', '%S+') do
    local fingerprint, at = string.match(word, '^(%x+)=(%d+)')
    if fingerprint and (declared[fingerprint] or fingerprint == mine) then
      known = known or fingerprint == mine
      words[#words + 1] = fingerprint .. '=' .. at
      if tonumber(at) > time then latest, time = fingerprint, tonumber(at) end
    end
  end
  if not known then
    latest = mine
    words[#words + 1] = string.format('%s=%.0f', mine, now_us)
  end
  return latest, table.concat(words, ' ')
end

local declarations = nil

local function examine(id, mine)
  local key = series_key(id)
  local known = redis.pcall('HMGET', key, 'call', 'fingerprint', 'declared', 'seen')
  if known.err then redis.call('RENAME', key, broken_key('series:' .. id)) end
  if known.err or not known[1] then return moving and OTHERS or PUT, '' end
  if not known[3] then return SCHEDULED, known[2] or '' end
  local counts, seen = latest_seen(known[4], declarations[id] or NOT_DECLARED, mine)
  if seen ~= known[4] then redis.call('HSET', key, 'seen', seen) end
  if counts ~= mine then return OTHERS, known[2] or '' end
  return known[2] == mine and redis.call('ZSCORE', series_set(), id) and STANDS or PUT, known[2] or ''
end

-- Written even before the first series is put: other listeners must see it at once.
write_declarations()
declarations = count_declarations(tonumber(ARGV[3]))
local reply = { now }
for at = 4, #ARGV, 2 do
  local code, standing = examine(ARGV[at], ARGV[at + 1])
  reply[#reply + 1] = code
  reply[#reply + 1] = standing
end
return reply
