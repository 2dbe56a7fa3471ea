% Writes the delayed messages of a node as lines of JSON: docs/how-to/import.md says how it is run.
Json = fun J(table, T) -> maps:from_list([{K, J(Type, V)} || {K, Type, V} <- T]);
           J(array, A) -> [J(Type, V) || {Type, V} <- A];
           J(void, _) -> null;
           J(_, B) when is_binary(B) ->
               case unicode:characters_to_binary(B) of
                   B -> B;
                   _ -> null
               end;
           J(_, V) when is_number(V); is_boolean(V) -> V;
           J(_, _) -> null
       end,
Content = fun(D) when element(1, D) =:= delivery -> element(4, element(5, D));
             (Mc) -> mc:protocol_state(mc:convert(mc_amqpl, Mc))
          end,
Keys = fun(D) when element(1, D) =:= delivery -> element(3, element(5, D));
          (Mc) -> mc:routing_keys(Mc)
       end,
Print = fun({delay_entry, {delay_key, Due, Exchange}, Message, Ref}, Count) ->
            {resource, VHost, exchange, Name} = element(2, Exchange),
            {Properties, Body} = rabbit_basic_common:from_content(Content(Message)),
            <<Id:128>> = erlang:md5(term_to_binary(Ref)),
            Headers = case element(4, Properties) of undefined -> []; H -> H end,
            Line = #{id => integer_to_binary(Id, 16), due => Due, vhost => VHost, exchange => Name,
                     routing_key => Json(text, hd(Keys(Message))), headers => Json(table, Headers),
                     content_type => Json(text, element(2, Properties)),
                     content_encoding => Json(text, element(3, Properties)),
                     body => base64:encode(iolist_to_binary(Body))},
            io:format("~ts~n", [rabbit_json:encode(Line)]),
            Count + 1
        end,
Table = list_to_atom("rabbit_delayed_message" ++ atom_to_list(node())),
mnesia:activity(async_dirty, fun() -> mnesia:foldl(Print, 0, Table) end).
