/** `txn serve`, with an embedded file in a temporary folder or in front of a server, and a server of its own. */

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

async function freePort() {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address();
  listener.close();
  await once(listener, "close");
  return port;
}

/** Creates a domain and its collections on a server, and returns the options of its gateway. */
export async function initialise(server, domain, collections) {
  const options = ["--store", server, "--domain", domain];
  await promisify(execFile)(resolve(process.env.TXN_GATEWAY_PROGRAM), ["init", ...options, ...collections]);
  return options;
}

export class Gateway {
  /** `options`: further options of `txn serve`. */
  static async start(options = ["--elastic-product"]) {
    const gateway = new Gateway();
    gateway.options = options;
    gateway.program = process.env.TXN_GATEWAY_PROGRAM;
    if (!gateway.program) throw new Error("set TXN_GATEWAY_PROGRAM to the path of the program txn");
    gateway.folder = await mkdtemp(join(tmpdir(), "txn-"));
    gateway.address = `127.0.0.1:${await freePort()}`;
    gateway.url = `http://${gateway.address}`;
    await gateway.run();
    return gateway;
  }

  /** Starts the process, and waits until it is ready. */
  async run() {
    const options = { cwd: this.folder, stdio: "ignore" };
    this.process = spawn(resolve(this.program), ["serve", "--listen", this.address, ...this.options], options);
    this.ended = once(this.process, "exit");
    while (!(await fetch(`${this.url}/readyz`).then(({ ok }) => ok, () => false))) {
      if (this.process.exitCode !== null) throw new Error("the gateway has ended");
      await sleep(20);
    }
  }

  async kill(signal = "SIGKILL") {
    this.process.kill(signal);
    await this.ended;
  }

  async stop() {
    await this.kill("SIGTERM");
    await rm(this.folder, { recursive: true });
  }
}

/** A server of a version, as `cargo xtask servers private` runs it. */
export class Server {
  static async start(kind) {
    const server = new Server();
    server.process = spawn(process.env.TXN_XTASK, ["servers", "private", kind], { stdio: ["pipe", "pipe", "inherit"] });
    server.ended = once(server.process, "exit");
    server.lines = createInterface({ input: server.process.stdout })[Symbol.asyncIterator]();
    server.url = await server.ready();
    return server;
  }

  async ready() {
    const { value, done } = await this.lines.next();
    if (done) throw new Error("the server has ended");
    return value;
  }

  /** Kills the node, starts it again, and waits until it is healthy. */
  async restart() {
    this.process.stdin.write("\n");
    await this.ready();
  }

  async stop() {
    this.process.stdin.end();
    await this.ended;
  }
}
