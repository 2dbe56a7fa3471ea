<?php
// Makes two tasks from PHP: one with plain commands, one by a function.
$url = parse_url(getenv('EXPIREBRIDGE_URL') ?: 'redis://localhost:6379/1');
$redis = new Redis();
$tls = $url['scheme'] === 'rediss' ? 'tls://' : '';
$redis->connect($tls . $url['host'], $url['port'] ?? 6379);
if (isset($url['pass'])) {
    $redis->auth(array_values(array_filter([$url['user'] ?? '', urldecode($url['pass'])])));
}
$redis->select((int) ltrim($url['path'] ?? '/0', '/'));
$args = json_encode([42, 'hi']);

// A key with a TTL. Its value means nothing.
$id = bin2hex(random_bytes(16));
$key = "$id:?mail.send?$args";
$redis->set($key, '', ['EX' => 60]);
$redis->pExpire($key, 1500); // any client may move it, as long as it lives
echo "$id\n";

// All or nothing; with an id of one's own it may be sent again.
[, $own] = $redis->rawCommand(
    'FCALL', 'expirebridge_make', 1, 'expirebridge', 'mail.send', $args, 500,
    'id', "hello-$id", 'if_exists', 'keep'
);
echo "$own\n";
