// Answers each line, a JSON array of commands, with {"reply": ...} or {"error": ...}.
module.exports = (answer, close) =>
  require("readline")
    .createInterface({ input: process.stdin })
    .on("line", async (line) => {
      const told = await answer(JSON.parse(line)).then(
        (reply) => ({ reply }),
        (error) => ({ error: error.message }),
      );
      process.stdout.write(JSON.stringify(told) + "\n");
    })
    .on("close", close);
