-- flags: (none: refused whole when memory is full)
-- Creates the tasks of rows that were committed a moment ago, before the numbered batch that brings these rows. That
-- finds their records, and stamps the rows.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of the ledger, 3 the lowest number that the last batch here must have, then for each row
--          what relay.lua has of it: of rows that wait, and that no batch has brought
-- returns  for each row 1 created, 0 left to the batch: its id has a record; or {} if this database is another
--          ledger's, or has lost a batch: then nothing was written
--
-- No row has ended here, or is rebuilt: nothing needs the lease and the time to keep that relay.lua is given for these.
--
-- The record of such a task has the field `early`, when that was in ms, until the batch comes: see judge_early.lua.

-- include names
-- include clock
-- include ledger

local nonce, number = read_binding()
if nonce ~= ARGV[2] or number < tonumber(ARGV[3]) then return {} end

-- include records
-- include ring
-- include relay_create

return ring_after(function()
  local reply, at = {}, 4
  while at <= #ARGV do
    local id, row, after = next_row(at)
    local is_free = redis.call('EXISTS', record_key(id)) == 0
    if is_free then
      put_value(row.fields, 'early', now)
      create_from_row(id, row)
    end
    reply[#reply + 1] = is_free and 1 or 0
    at = after
  end
  return reply
end)
