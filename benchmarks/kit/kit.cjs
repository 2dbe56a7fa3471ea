// What journal.py, server.py and driver.py are for contenders in Python, for those in JavaScript. See
// there for what it means.

const fs = require("node:fs");
const readline = require("node:readline");

const JOURNAL = fs.openSync(process.env.LAB_JOURNAL, "a");
const WORK = Number(process.env.LAB_WORK || 0);
const BATCH = 1000;

function note(what, number) {
  const now = (performance.timeOrigin + performance.now()) / 1000;
  fs.writeSync(JOURNAL, `${what} ${number} ${now.toFixed(6)} ${process.pid}\n`);
}

async function handle(number) {
  note("began", number);
  if (WORK) await new Promise((done) => setTimeout(done, WORK * 1000));
  note("ended", number);
}

function answer(value) {
  fs.writeSync(1, JSON.stringify(value) + "\n");
}

async function obey({ schedule, scheduleMany }, order) {
  const { first, count, due_ms, spread_ms, bulk } = order;
  const tasks = Array.from({ length: count }, (_, n) => [
    first + n,
    (due_ms + Math.floor((n * spread_ms) / count)) / 1000,
  ]);
  const began = performance.now();
  if (bulk) {
    for (let at = 0; at < count; at += BATCH) await scheduleMany(tasks.slice(at, at + BATCH));
  } else {
    for (const [number, due] of tasks) await schedule(number, due);
  }
  return (performance.now() - began) / 1000;
}

async function drive(contender) {
  answer({ bulk: Boolean(contender.scheduleMany) });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    try {
      answer({ seconds: await obey(contender, JSON.parse(line)) });
    } catch (error) {
      console.error(error);
      answer({ error: String(error) });
    }
  }
  process.exit(0);
}

module.exports = {
  HOST: "127.0.0.1",
  PORT: Number(process.env.LAB_PORT),
  DATABASE: 1,
  CONCURRENCY: Number(process.env.LAB_CONCURRENCY || 100),
  USER: "user@example.com",
  drive,
  handle,
};
