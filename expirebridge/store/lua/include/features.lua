-- include names
-- include format
-- include mark_format

-- Notes in `meta` that the database uses a feature: 'series', 'ledger' or 'moving' ('partitions' is noted
-- with their number). A script calls this before it writes, for the first time, what plain use does not
-- ask for.
local function note_feature(name)
  mark_format()
  local words = ' ' .. (features or '') .. ' '
  if string.find(words, ' ' .. name .. ' ', 1, true) then return end
  features = features and features .. ' ' .. name or name
  redis.call('HSET', meta_key, 'features', features)
end
