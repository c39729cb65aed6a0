/** The requests that the official clients send for one bulk, by the kind of the answer. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { Client as OpenSearch } from "@opensearch-project/opensearch";
import { Client as Elasticsearch8 } from "elasticsearch-8";
import { Client as Elasticsearch9 } from "elasticsearch-9";

const { statuses, requests } = JSON.parse(await readFile(new URL("../counts.json", import.meta.url)));

const BULK = [
  { create: { _index: "counted", _id: "1" } }, { a: 1 },
  { index: { _index: "counted", _id: "2" } }, { a: 1 },
];

const CLIENTS = {
  "JavaScript, Elasticsearch 8": Elasticsearch8,
  "JavaScript, Elasticsearch 9": Elasticsearch9,
  "JavaScript, OpenSearch 3": OpenSearch,
};

/** The options of a client by the kind of the answers. A slow answer comes after this request timeout. */
const OPTIONS = { slow: { requestTimeout: 1_000 } };

/** Starts the gateways, and returns their addresses by the kind of their answers. */
async function start(context) {
  const program = process.env.TXN_COUNTED_PROGRAM;
  const gateways = spawn(resolve(program), { stdio: ["pipe", "pipe", "inherit"] });
  context.after(async () => {
    gateways.stdin.end();
    await once(gateways, "exit");
  });
  const { value } = await createInterface({ input: gateways.stdout })[Symbol.asyncIterator]().next();
  return JSON.parse(value);
}

/** Starts a server that answers no bulk, and returns its address. Otherwise it is like a gateway of `start`. */
async function startSlow(context) {
  const statuses = [];
  const server = createServer((request, response) => {
    if (request.url === "/_counted") response.end(JSON.stringify(statuses.splice(0)));
    else statuses.push(0);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  context.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

test("clients send as many requests as documented", {
  skip: !process.env.TXN_COUNTED_PROGRAM && "set TXN_COUNTED_PROGRAM to the path of the program counted",
}, async (context) => {
  const addresses = { ...(await start(context)), slow: await startSlow(context) };
  const answered = {};
  for (const [name, Client] of Object.entries(CLIENTS)) {
    answered[name] = {};
    for (const [kind, address] of Object.entries(addresses)) {
      const client = new Client({ node: address, ...OPTIONS[kind] });
      const sent = client.bulk(name.includes("OpenSearch") ? { body: BULK } : { operations: BULK });
      const failed = await sent.then(() => false, () => true);
      assert.equal(failed, kind !== "committed", `${name}, ${kind}`);
      await client.close();
      answered[name][kind] = await fetch(`${address}/_counted`).then((answer) => answer.json());
    }
  }
  for (const name of Object.keys(CLIENTS)) {
    const expected = Object.entries(requests[name]).map(([kind, count]) => [kind, Array(count).fill(statuses[kind])]);
    assert.deepEqual(answered[name], Object.fromEntries(expected), name);
  }
});
