// Sends what the tests ask for with ioredis: more than one command as a transaction.
const Redis = require("ioredis");
const redis = new Redis(process.argv[2]);

async function answer([command, ...more]) {
  if (!more.length) return redis.call(...command);
  const multi = redis.multi();
  for (const [name, ...words] of [command, ...more]) multi[name.toLowerCase()](...words);
  const replies = await multi.exec();
  return replies.map(([error, reply]) => {
    if (error) throw error;
    return reply;
  });
}

require("./lines.js")(answer, () => redis.disconnect());
