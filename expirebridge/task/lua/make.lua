-- flags: (none: refused whole when memory is full)
-- Makes tasks: record, place in `pending` and timer of each, all or nothing.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of this call, then for each task:
--          id, '1' if the id was drawn at random for this call (else '0'),
--          if_exists ('reject', 'keep', 'replace' or 'extend'), call, 'in' or 'at', ms (from now, or
--          since 1970), n, then n names and values for the record; those that are named `max_wait`
--          and `window` are not for the record: see making.lua
-- returns  now, then for each task: due in ms, trigger key, and nil if it was created and waits with
--          its arguments in its key, else {code, call, state, args (if they are in the record)}
--          codes: 1 created, 2 kept, 3 exists, 4 replaced, 5 extended, 6 differs (extend was asked
--          for, but the task has another function or other arguments), 7 no group of that name, 8 the
--          group takes no more members, 9 exists, or differs, and is of a ledger

-- include features
-- include making
-- include drawn
-- include ring

mark_format()
return ring_after(function() return make_each(read_new, make_one) end)
