-- include names
-- include clock
-- include fleet

-- Which declarations each listener carries: a hash of its texts, ' <series>=<fingerprint> ... '.
-- One that has been silent for two leases carries nothing.
local function texts_of_carriers(lease)
  -- With ZRANGE, which producers may send, too.
  local listeners = redis.call('ZRANGE', listeners_key, now - 2 * lease, '+inf', 'BYSCORE')
  return values_of(carriers_key(), listeners)
end

-- The fingerprints of a series that these carry, each with the number of its carriers.
local function carried(texts, series)
  local found = {}
  for _, text in ipairs(texts) do
    local _, stop = string.find(text or '', ' ' .. series .. '=', 1, true)
    local fingerprint = stop and string.match(text, '^%x+', stop + 1)
    if fingerprint then found[fingerprint] = (found[fingerprint] or 0) + 1 end
  end
  return found
end
