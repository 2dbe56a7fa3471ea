-- flags: allow-oom
-- Notes how far ahead rows of the ledger are relayed, for clients that have no SQL.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 horizon in ms ('': none, all rows are relayed)
-- returns  1

-- include ledger

if ARGV[2] == '' then
  redis.call('HDEL', ledger_key(), 'horizon')
else
  redis.call('HSET', ledger_key(), 'horizon', ARGV[2])
end
return 1
