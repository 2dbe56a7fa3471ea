<?php
// Sends what the tests ask for to a cluster, with RedisCluster of the extension: for each line, a JSON
// array of commands, one with {"reply": ...} or {"error": ...}.
$cluster = new RedisCluster(null, [$argv[1]], 5, 5);
while (($line = fgets(STDIN)) !== false) {
    [$command] = json_decode($line);
    $words = array_map('strval', $command);
    $key = $words[$words[0] === 'FCALL' ? 3 : 1];
    $cluster->clearLastError();
    try {
        $reply = $cluster->rawCommand($key, ...$words);
        $error = $cluster->getLastError();
    } catch (RedisClusterException $failure) {
        $error = $failure->getMessage();
    }
    echo json_encode($error === null ? ['reply' => $reply] : ['error' => $error]), "\n";
}
