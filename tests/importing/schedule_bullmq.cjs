// Schedules jobs with BullMQ: node schedule_bullmq.cjs URL, with what to do as JSON on stdin.

const { readFileSync } = require("node:fs");
const { FlowProducer, Queue, Worker } = require("bullmq");

const { hostname, port, pathname } = new URL(process.argv[2]);
const connection = { host: hostname, port: Number(port), db: Number(pathname.slice(1)) };
const { prefix, add = [], schedulers = [], flows = [], fail = [] } = JSON.parse(readFileSync(0));
const queues = {};

const queue = (name) => (queues[name] ??= new Queue(name, { connection, prefix }));

// A job whose first attempt fails waits for its second one.
const failOnce = (name) =>
  new Promise((resolve) => {
    const worker = new Worker(name, () => Promise.reject(new Error("boom")), { connection, prefix });
    worker.on("failed", () => worker.close().then(resolve));
  });

const work = async () => {
  const made = Date.now();
  for (const { queue: name, name: job, data, due, opts } of add) {
    const when = due ? { timestamp: made, delay: due - made } : {};
    await queue(name).add(job, data, { ...when, ...opts });
  }
  for (const { queue: name, id, every } of schedulers) {
    await queue(name).upsertJobScheduler(id, { every, offset: every - 1 }, { name: "tick", data: {} });
  }
  const flow = new FlowProducer({ connection, prefix });
  for (const one of flows) await flow.add(one);
  await flow.close();
  for (const name of fail) await failOnce(name);
  for (const one of Object.values(queues)) await one.close();
};

work().then(() => process.exit(0));
