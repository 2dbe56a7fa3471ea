-- include clock
-- include features
-- include format
-- include hooks
-- include names
-- on on_write 60 note_signals

-- Notes that the database has tasks that a signal can decide, before the first of them is written. The hash `signals` has
-- `since` when, in ms, and counts: `signalled`, the signals that decided, and `passed`, the deadlines that did. By it the
-- feature is known if `meta` is lost.
local function note_signals(fields)
  if uses.signals then return end
  for i = 1, #fields, 2 do
    local name = fields[i]
    if name == 'on_signal' or name == 'passed' or name == 'signalled' then
      -- HSETNX would be another right for each login that makes tasks, or moves them.
      if redis.call('EXISTS', own_key('signals')) == 0 then redis.call('HSET', own_key('signals'), 'since', now) end
      return note_feature('signals')
    end
  end
end
