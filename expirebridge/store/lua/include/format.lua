-- include names

-- The version of what is stored. A database that a newer version wrote is refused before anything is
-- read or changed. If another client overwrote `meta`, the version is unknown.
--
-- Beside it, which code the fleet runs: the fingerprints of the listeners that beat, separated by
-- spaces. One word means that all run the same. And the features that the database uses, absent in plain
-- use, which asks for nothing that only they need (see features).
local KNOWN_FORMAT = 1
local FIRST_TAG = '{021}' -- of partition 0, whatever their number
local meta = redis.pcall('HMGET', meta_key, 'format', 'code', 'features')
if meta.err then
  if not string.find(meta.err, 'WRONGTYPE', 1, true) then return meta end
  meta = {}
end
local written, fleet_code, features = meta[1], meta[2], meta[3]
local plain = written == '1' and not features

-- How many partitions the database has, and what ids begin with that are made here, so that they belong
-- to this one. More than 1 is a feature, and stands behind the database's number in ARGV[1]. A caller
-- who assumes another number is refused. If `meta` is lost, its sisters say the number: the one without
-- a tag, or that of the first partition. In a cluster, no script may ask them: a caller who writes `?`
-- behind the number is refused, asks them itself, and calls again without.
--
-- `moving` is set while the tasks are moved to another database ('to <where>'), or from there ('from ...').
local partitions, home, moving = 1, '', nil
if not plain or slot ~= '' then
  if written and (tonumber(written) or 0) > KNOWN_FORMAT then
    return redis.error_reply('EXPIREBRIDGE_FORMAT ' .. written .. ' ' .. KNOWN_FORMAT)
  end
  partitions = tonumber(string.match(ARGV[1], '/(%d+)') or 1)
  local keeper = written and meta_key or slot == '' and FIRST_TAG .. meta_key
    or partitions > 1 and string.sub(meta_key, #slot + 1)
  local known = keeper and redis.pcall('HMGET', keeper, 'partitions', 'moving') or {}
  local stored = known[1] and tonumber(known[1])
  moving = known[2] or nil
  -- Who calls a function names only the partition.
  if ARGV[1] == '' and slot ~= '' then
    partitions = stored or 1
    written = written or ''
  end
  if stored and stored ~= partitions then
    return redis.error_reply('EXPIREBRIDGE_PARTITIONS ' .. stored .. ' ' .. partitions
      .. ': the database has another number of partitions; nothing was written')
  end
  if not stored and partitions > 1 and string.sub(ARGV[1], -1) == '?' then
    return redis.error_reply('EXPIREBRIDGE_UNMARKED ' .. partitions .. ': ask the others')
  end
  if partitions > 1 then home = string.sub(slot, 2, -2) .. '@' end
end
