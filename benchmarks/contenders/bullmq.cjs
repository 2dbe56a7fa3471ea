// /// script
// dependencies = ["bullmq@6.7.0", "ioredis@5"]
//
// [tool.lab]
// title = "BullMQ"
// kind = "peer"
// environment = "node"
// driver = "node {file} produce"
// worker = ["node {file} work"]
// handlers = ["async"]
// concurrency = "concurrency: 100"
// settings = "defaults, with ioredis; JavaScript, on Node.js"
// redelivery = 60 # lockDuration and stalledInterval
// documentation = ["https://docs.bullmq.io/"]
// ///

// BullMQ: a sorted set for what is delayed; workers wait on a marker until the next is due.

const { Queue, Worker } = require("bullmq");
const { CONCURRENCY, DATABASE, HOST, PORT, USER, drive, handle } = require("../kit/kit.cjs");

const connection = { host: HOST, port: PORT, db: DATABASE };

if (process.argv[2] === "work") {
  new Worker("lab", (job) => handle(job.data.number), { connection, concurrency: CONCURRENCY });
} else {
  const queue = new Queue("lab", { connection });

  const job = (number, due) => ({
    name: "send",
    data: { number, user: USER },
    opts: { delay: Math.max(Math.round(due * 1000) - Date.now(), 0) },
  });

  const schedule = (number, due) => {
    const { name, data, opts } = job(number, due);
    return queue.add(name, data, opts);
  };

  const scheduleMany = (tasks) => queue.addBulk(tasks.map(([number, due]) => job(number, due)));

  drive({ schedule, scheduleMany });
}
