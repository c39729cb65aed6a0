/** The bulk helper of the official client, while the gateway is killed and started again. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "elasticsearch-8";
import { Gateway } from "./gateway.js";

const KILLS = 5;
const WRITERS = 8;
/** Acknowledged bulks between two kills. */
const PROGRESS = 60;

test("killed gateway loses nothing and writes no half", { timeout: 300_000 }, async (context) => {
  const gateway = await Gateway.start();
  const client = new Client({ node: gateway.url });
  context.after(async () => {
    await client.close();
    await gateway.stop();
  });
  const acknowledged = new Array(WRITERS).fill(0);
  const total = () => acknowledged.reduce((sum, count) => sum + count, 0);
  let isOver = false;
  let failures = 0;
  let checks = 0;

  const index = "pairs";
  const ids = (writer) => [`${writer}-left`, `${writer}-right`];
  await client.bulk({
    operations: acknowledged.flatMap((_, writer) =>
      ids(writer).flatMap((_id) => [{ index: { _index: index, _id } }, { value: 0 }])),
  });

  /** Writes one value to both documents of a pair, until the bulk is acknowledged. */
  async function write(writer, value) {
    for (;;) {
      try {
        const { failed } = await client.helpers.bulk({
          datasource: ids(writer),
          onDocument: (_id) => [{ index: { _index: index, _id } }, { value }],
          onDrop: ({ error }) => assert.fail(JSON.stringify(error)),
        });
        assert.equal(failed, 0);
        return;
      } catch (error) {
        if (error instanceof assert.AssertionError) throw error;
        failures += 1;
        await sleep(50);
      }
    }
  }

  async function read(writer) {
    const targets = ids(writer).map((id) => ({ collection: index, id }));
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(`${gateway.url}/_txn/read`, { method: "POST", headers, body: JSON.stringify({ targets }) });
    if (!response.ok) throw new Error(await response.text());
    return (await response.json()).documents.map(({ document }) => document.value);
  }

  const writers = acknowledged.map(async (_, writer) => {
    for (let value = 1; !isOver; value += 1) {
      await write(writer, value);
      acknowledged[writer] = value;
    }
  });
  const checker = (async () => {
    for (let round = 0; !isOver; round += 1) {
      const writer = round % WRITERS;
      const before = acknowledged[writer];
      const values = await read(writer).catch(() => undefined);
      if (values === undefined) {
        await sleep(20);
        continue;
      }
      assert.equal(values[0], values[1], `writer ${writer} has a half`);
      assert(values[0] >= before, `writer ${writer} lost ${before}`);
      checks += 1;
    }
  })();
  const killer = (async () => {
    for (let kill = 0; kill < KILLS; kill += 1) {
      const target = total() + PROGRESS;
      while (total() < target && !isOver) await sleep(10);
      await gateway.kill();
      await gateway.run();
    }
    isOver = true;
  })();
  await Promise.all([killer, checker, ...writers].map((task) => task.finally(() => { isOver = true; })));
  for (let writer = 0; writer < WRITERS; writer += 1) {
    assert.deepEqual(await read(writer), [acknowledged[writer], acknowledged[writer]]);
  }
  assert(checks > 0 && total() >= KILLS * PROGRESS);
  context.diagnostic(`${total()} bulks, ${failures} repeated by the application, ${checks} reads`);
});
