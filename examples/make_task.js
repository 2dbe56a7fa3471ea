// Makes two tasks from Node: one with plain commands, one by a function.
const { randomUUID } = require("crypto");
const Redis = require("ioredis");

async function main() {
  const redis = new Redis(process.env.EXPIREBRIDGE_URL || "redis://localhost:6379/1");
  const args = JSON.stringify([42, "hi"]);

  // A key with a TTL. Its value means nothing.
  const id = randomUUID();
  const key = `${id}:?mail.send?${args}`;
  await redis.multi().set(key, "").expire(key, 60).exec();
  await redis.pexpire(key, 1500); // any client may move it, as long as it lives
  console.log(id);

  // All or nothing; with an id of one's own it may be sent again.
  const [, own] = await redis.fcall(
    "expirebridge_make", 1, "expirebridge", "mail.send", args, 500,
    "id", `hello-${id}`, "if_exists", "keep",
  );
  console.log(own);
  redis.disconnect();
}

main();
