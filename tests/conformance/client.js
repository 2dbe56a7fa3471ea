// Sends what the tests ask for with ioredis: one JSON array of commands a line, more than one as a
// transaction. Answers each line with {"reply": ...} or {"error": ...}.
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

require("readline")
  .createInterface({ input: process.stdin })
  .on("line", async (line) => {
    const told = await answer(JSON.parse(line)).then(
      (reply) => ({ reply }),
      (error) => ({ error: error.message }),
    );
    process.stdout.write(JSON.stringify(told) + "\n");
  })
  .on("close", () => redis.disconnect());
