-- include names
-- gives KNOWN_FORMAT, written, fleet_code, features, plain, partitions, home, moving, uses

-- The version of what is stored. A database that a newer version wrote is refused before anything is
-- read or changed. If another client overwrote `meta`, the version is unknown.
--
-- `fleet_code` holds the fingerprints of the codes that the fleet runs, separated by spaces: one word if all
-- listeners run the same. `features` are those that the database uses, absent in plain use: see features.lua.
local KNOWN_FORMAT = 1
local FIRST_TAG = '{021}' -- of partition 0, whatever their number
local meta = redis.pcall('HMGET', meta_key, 'format', 'code', 'features')
if meta.err then
  if not string.find(meta.err, 'WRONGTYPE', 1, true) then return meta end
  meta = {}
end
local written, fleet_code, features = meta[1], meta[2], meta[3]
local plain = written == '1' and not features

-- The number of partitions, and the prefix of ids that are made here, so that they belong to this partition. More
-- than 1 is a feature, and follows the database's number in ARGV[1]. A caller that assumes another number is refused.
-- If `meta` is lost, the number is read from the `meta` without a tag, or that of the first partition. In a cluster
-- no script may read those: a caller that writes `?` behind the number is refused, reads them itself, and calls
-- again without `?`.
--
-- `moving` is set while the tasks are moved to another database ('to <where>'), or from there ('from ...').
local partitions, home, moving = 1, '', nil
if not plain or hash_tag ~= '' then
  if written and (tonumber(written) or 0) > KNOWN_FORMAT then
    return redis.error_reply('EXPIREBRIDGE_FORMAT ' .. written .. ' ' .. KNOWN_FORMAT)
  end
  partitions = tonumber(string.match(ARGV[1], '/(%d+)') or 1)
  local keeper = written and meta_key or hash_tag == '' and FIRST_TAG .. meta_key
    or partitions > 1 and string.sub(meta_key, #hash_tag + 1)
  local known = keeper and redis.pcall('HMGET', keeper, 'partitions', 'moving') or {}
  -- A power of two, up to 256. Another client may have written anything.
  local stored = known[1] and tonumber(known[1])
  if stored and not (stored % 1 == 0 and stored >= 1 and 256 % stored == 0) then stored = nil end
  moving = known[2] or nil
  -- A caller of a function names only the partition.
  if ARGV[1] == '' and hash_tag ~= '' then
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
  if partitions > 1 then home = string.sub(hash_tag, 2, -2) .. '@' end
end

local function words_in(text)
  local words = {}
  for word in string.gmatch(text, '%S+') do words[word] = true end
  return words
end

-- True for each feature in use. What serves one alone is in shared files that say so, `-- when limits`: where it is not in
-- use, no script makes their functions.
local uses = features and words_in(features) or {}
