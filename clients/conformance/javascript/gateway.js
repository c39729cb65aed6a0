/** `txn serve`, with an embedded file in a temporary folder. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

async function freePort() {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address();
  listener.close();
  await once(listener, "close");
  return port;
}

export class Gateway {
  static async start() {
    const gateway = new Gateway();
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
    this.process = spawn(resolve(this.program), ["serve", "--listen", this.address, "--elastic-product"], options);
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
