-- flags: no-writes
-- Reads the code of each listener, and the functions of each code.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 lease in ms
-- returns  {for each listener with a heartbeat within a lease, the oldest first: name, ms since its
--          last heartbeat, its code, or '' if another client overwrote that}, then for each fingerprint among
--          these codes: fingerprint, {name and shape of each function, and the field `#`}

-- include names
-- include format
-- include clock
-- include fleet

-- With ZRANGE, which producers may send, too.
local listeners = redis.call('ZRANGE', listeners_key, now - tonumber(ARGV[2]), '+inf', 'BYSCORE', 'WITHSCORES')
local names, ages = {}, {}
for i = 1, #listeners, 2 do
  names[#names + 1] = listeners[i]
  ages[#ages + 1] = math.max(0, now - tonumber(listeners[i + 1]))
end

local reply, known = { {} }, {}
for i, code in ipairs(codes_of(names)) do
  local row = reply[1]
  row[#row + 1], row[#row + 2], row[#row + 3] = names[i], ages[i], code or ''
  local fingerprint = string.match(code or '', '^%x+')
  if fingerprint and not known[fingerprint] then
    known[fingerprint] = true
    local shapes = redis.pcall('HGETALL', code_key(fingerprint))
    reply[#reply + 1] = fingerprint
    reply[#reply + 1] = shapes.err and {} or shapes
  end
end
return reply
