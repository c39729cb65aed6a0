/** A gateway process, and a proxy that records its requests and interferes with them. */

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, request as send, type IncomingMessage, type OutgoingHttpHeaders, type Server } from "node:http";
import { createServer as createListener, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export interface Recorded { method: string; path: string; key: string | undefined; authorization: string | undefined }
/** An answer that replaces that of the gateway. */
export interface Replaced { status: number; headers?: OutgoingHttpHeaders; body: unknown }
/** `cut` closes the connection after the request was carried out. */
export type Rule = (request: Recorded) => "pass" | "cut" | Replaced;

export async function freePort(): Promise<number> {
  const listener = createListener().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address() as AddressInfo;
  listener.close();
  await once(listener, "close");
  return port;
}

/** `txn serve` with an embedded file in a temporary folder. */
export class Gateway {
  private constructor(readonly url: string, readonly port: number, readonly process: ChildProcess, readonly folder: string) {}

  static async start(): Promise<Gateway> {
    const program = process.env.TXN_GATEWAY_PROGRAM;
    if (!program) throw new Error("set TXN_GATEWAY_PROGRAM to the path of the program txn");
    const folder = await mkdtemp(join(tmpdir(), "txn-"));
    const port = await freePort();
    const options = { cwd: folder, stdio: "ignore" } as const;
    const child = spawn(resolve(program), ["serve", "--listen", `127.0.0.1:${port}`], options);
    const gateway = new Gateway(`http://127.0.0.1:${port}`, port, child, folder);
    while (!(await fetch(`${gateway.url}/readyz`).then(({ ok }) => ok, () => false))) {
      if (child.exitCode !== null) throw new Error("the gateway has ended");
      await sleep(20);
    }
    return gateway;
  }

  async request(method: string, path: string, body?: unknown): Promise<any> {
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(this.url + path, { method, headers, body: body === undefined ? null : JSON.stringify(body) });
    if (!response.ok) throw new Error(`${method} ${path}: ${await response.text()}`);
    return response.json();
  }

  async put(collection: string, id: string, document: object): Promise<void> {
    await this.request("PUT", `/${collection}/_doc/${id}`, document);
  }

  async get(collection: string, id: string): Promise<any> {
    return (await this.request("GET", `/${collection}/_doc/${id}`))._source;
  }

  async stop(): Promise<void> {
    this.process.kill();
    if (this.process.exitCode === null) await once(this.process, "exit");
    await rm(this.folder, { recursive: true });
  }
}

/** Forwards requests to a gateway as a rule says, and records them. */
export class Proxy {
  readonly requests: Recorded[] = [];
  rule: Rule = () => "pass";
  private constructor(private readonly server: Server, readonly url: string) {}

  static async start(gateway: Gateway): Promise<Proxy> {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const proxy = new Proxy(server, `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    server.on("request", async (request, response) => {
      const key = request.headers["idempotency-key"] as string | undefined;
      const { method = "", url = "", headers: { authorization } } = request;
      const recorded = { method, path: url, key, authorization };
      const body = await read(request);
      proxy.requests.push(recorded);
      const rule = proxy.rule(recorded);
      if (typeof rule === "object") {
        response.writeHead(rule.status, rule.headers).end(JSON.stringify(rule.body));
        return;
      }
      const headers = { "Content-Type": "application/json", ...(key ? { "Idempotency-Key": key } : {}) };
      const forwarded = send({ host: "127.0.0.1", port: gateway.port, method, path: url, headers, agent: false });
      forwarded.end(body);
      const [answer] = (await once(forwarded, "response")) as [IncomingMessage];
      const text = await read(answer);
      if (rule === "cut") request.socket.destroy();
      else response.writeHead(answer.statusCode ?? 500).end(text);
    });
    return proxy;
  }

  paths(): string[] {
    return this.requests.map(({ path }) => path);
  }

  commits(): Recorded[] {
    return this.requests.filter(({ path }) => path.startsWith("/_txn/commit"));
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    this.server.close();
    await once(this.server, "close");
  }
}

async function read(message: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of message) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
