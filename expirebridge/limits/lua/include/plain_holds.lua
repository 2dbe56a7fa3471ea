-- include names
-- include features
-- include hooks
-- on on_sweep 25 note_holds

-- If a plain client has set a hold, claims look at holds from now on.
local function note_holds()
  if redis.call('EXISTS', own_key('holds')) == 1 then note_feature('limits') end
end
