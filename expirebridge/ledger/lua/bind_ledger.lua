-- flags: allow-oom
-- Binds this database to a ledger, whatever it was bound to. The batch number starts at 0: nothing was relayed yet.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of the ledger
-- returns  1

-- include features
-- include ledger

note_feature('ledger')
redis.call('HSET', ledger_key(), 'nonce', ARGV[2], 'number', 0, 'unmarked', '')
return 1
