-- include features
-- include hooks
-- include lane_keys
-- on on_sweep 25 note_holds

-- If a plain client has set a hold, claims look at holds from now on.
local function note_holds()
  if redis.call('EXISTS', holds_key()) == 1 then note_feature('limits') end
end
