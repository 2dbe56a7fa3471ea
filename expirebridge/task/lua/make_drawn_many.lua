-- flags: (none: refused whole when memory is full)
-- Makes several tasks as make_drawn.lua does, in fewer steps: one command shows that none of them exists, one gives all
-- their places.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 '', then for each task as in make.lua
-- returns  now and the hash tag of the partition, if all were made as they were asked for; what make.lua returns if any
--          was there, since this very call was sent before

-- include names
-- include clock
-- include features
-- include ring
-- include drawn

mark_format()
local ids, items, records, places, at = {}, {}, {}, {}, 3
while at <= #ARGV do
  local n = #ids + 1
  ids[n], items[n], at = read_request(at)
  records[n] = record_key(ids[n])
  places[2 * n - 1], places[2 * n] = items[n].due, ids[n]
end
local reply = { now, hash_tag }
if redis.call('EXISTS', unpack(records)) > 0 then
  reply = make_each(read_request, make_drawn)
else
  redis.call('ZADD', state_set('pending'), unpack(places))
  for n, id in ipairs(ids) do write_new(id, items[n], items[n].due, items[n].fields, true) end
end
ring_if_first()
return reply
