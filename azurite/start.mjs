// Starts the pinned emulator, says where it listens, and ends with its parent.
//
//   node azurite/start.mjs --location DIR [--blob-port N] [--queue-port N] [--table-port N] [--ephemeral] [--ignore-stdin]
//
// 1. A port of 0 (the default) takes a free one. The one line on stdout, printed when all three services take requests, is
//    {"blob":N,"queue":N,"table":N}
// 2. It stops on SIGTERM, on SIGINT and when its stdin ends, so that a parent that was killed leaves no emulator behind;
//    `--ignore-stdin` is for terminals and scripts that have no stdin to give.
// 3. Data is kept on disk: the emulator's in-memory mode freezes for seconds while it collects consumed messages.
//    `--ephemeral` removes DIR at the end.

import { mkdirSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";

const STOP_MS_MAX = 2000;

const { values: flags } = parseArgs({
  options: {
    location: { type: "string" },
    "blob-port": { type: "string", default: "0" },
    "queue-port": { type: "string", default: "0" },
    "table-port": { type: "string", default: "0" },
    ephemeral: { type: "boolean", default: false },
    "ignore-stdin": { type: "boolean", default: false },
  },
});
if (!flags.location) {
  console.error("start.mjs: `--location DIR` is missing: the emulator keeps its data there");
  process.exit(2);
}
mkdirSync(flags.location, { recursive: true });

const ports = {};
let stopping = false;
// The emulator itself closes its services and stores on the signals and on the message; before it is up there is nothing to save.
function stop(message) {
  if (Object.keys(ports).length < 3) process.exit(0);
  if (stopping) return;
  stopping = true;
  if (message) process.emit("message", message);
  // An open keep-alive connection would hold the process; what is stored is stored by then.
  setTimeout(() => process.exit(0), STOP_MS_MAX).unref();
}
process.on("SIGTERM", () => stop()).on("SIGINT", () => stop());
process.on("exit", () => {
  if (flags.ephemeral) rmSync(flags.location, { recursive: true, force: true });
});

console.log = (line) => {
  const found = /Azurite (Blob|Queue|Table) service is successfully listening at .*:(\d+)/.exec(line);
  if (!found) return;
  ports[found[1].toLowerCase()] = Number(found[2]);
  if (Object.keys(ports).length === 3) process.stdout.write(`${JSON.stringify(ports)}\n`);
};

if (!flags["ignore-stdin"]) {
  process.stdin.on("end", () => stop("shutdown")).on("error", () => stop("shutdown")).resume();
}

process.argv = [
  ...process.argv.slice(0, 2),
  ...["--blobHost", "127.0.0.1", "--blobPort", flags["blob-port"]],
  ...["--queueHost", "127.0.0.1", "--queuePort", flags["queue-port"]],
  ...["--tableHost", "127.0.0.1", "--tablePort", flags["table-port"]],
  ...["--location", flags.location, "--silent", "--disableTelemetry"],
];
createRequire(import.meta.url)("azurite/dist/src/azurite.js");
