// Sends what the tests ask for to a cluster, with ioredis or with node-redis.
const [library, host, port] = process.argv.slice(2);

function ioredis() {
  const { Cluster } = require("ioredis");
  const cluster = new Cluster([{ host, port }]);
  return [(command) => cluster.call(...command), () => cluster.disconnect()];
}

function nodeRedis() {
  const cluster = require("redis").createCluster({ rootNodes: [{ url: `redis://${host}:${port}` }] });
  const connected = cluster.connect();
  const send = async ([name, ...words]) => {
    await connected;
    const key = words[name === "FCALL" ? 2 : 0];
    return cluster.sendCommand(key, false, [name, ...words.map(String)]);
  };
  return [send, () => cluster.destroy()];
}

const [send, close] = library === "ioredis" ? ioredis() : nodeRedis();
require("./lines.js")(([command]) => send(command), close);
