-- The value of one field in a list of names and values, as producers send them.
local function value_of(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
  return nil
end

local function take_value(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then
      table.remove(fields, i)
      return table.remove(fields, i)
    end
  end
  return nil
end

local function put_value(fields, name, value)
  for i = 1, #fields, 2 do
    if fields[i] == name then
      fields[i + 1] = value
      return
    end
  end
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
