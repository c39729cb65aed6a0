/**
 * An application that moves amounts by the bulk helper, through the gateway and directly to the server.
 *
 * Each transfer has an entry and two accounts in one bulk. The node and the gateway are killed in turn. At the end the
 * entries and the accounts are compared.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "elasticsearch-8";
import { Gateway, Server, initialise } from "./gateway.js";

const ACCOUNTS = 6;
const OPENING = 1_000;
const WRITERS = 8;
const KILLS = 4;
/** Acknowledged transfers between two kills. */
const PROGRESS = 60;

const account = (number) => `account-${number}`;
const any = (count) => Math.floor(Math.random() * count);

class Bank {
  constructor(url, name) {
    // The client of an application that waits for no answer longer than a few seconds.
    this.client = new Client({ node: url, maxRetries: 0, requestTimeout: 10_000 });
    this.accounts = `${name}-accounts`;
    this.entries = `${name}-entries`;
    this.acknowledged = new Map();
    this.failures = 0;
    this.isOver = false;
  }

  async open() {
    const documents = Array.from({ length: ACCOUNTS }, (_, number) => account(number));
    await this.client.bulk({
      refresh: true,
      operations: documents.flatMap((_id) => [{ create: { _index: this.accounts, _id } }, { balance: OPENING }]),
    });
  }

  /** Moves an amount, until the application knows that it is moved. */
  async transfer(id, from, to, amount) {
    for (;;) {
      try {
        if (await this.client.exists({ index: this.entries, id })) return;
        if (await this.move(id, from, to, amount)) return;
      } catch {
        // The next round asks whether the transfer happened.
        await sleep(100);
      }
      this.failures += 1;
    }
  }

  /** One attempt: reads both accounts, and writes them if no other client has changed them since. */
  async move(id, from, to, amount) {
    const [one, other] = await Promise.all([from, to].map((number) =>
      this.client.get({ index: this.accounts, id: account(number) })));
    const write = ({ _id, _seq_no, _primary_term, _source }, change) => ({
      action: { index: { _index: this.accounts, _id, if_seq_no: _seq_no, if_primary_term: _primary_term } },
      document: { balance: _source.balance + change },
    });
    const { failed } = await this.client.helpers.bulk({
      datasource: [
        { action: { create: { _index: this.entries, _id: id } }, document: { from, to, amount } },
        write(one, -amount), write(other, amount),
      ],
      onDocument: ({ action, document }) => [action, document],
      onDrop: () => {},
      retries: 0,
    });
    return failed === 0;
  }

  async write(writer) {
    for (let number = 0; !this.isOver; number += 1) {
      const [id, from, amount] = [`${writer}-${number}`, any(ACCOUNTS), 1 + any(50)];
      const to = (from + 1 + any(ACCOUNTS - 1)) % ACCOUNTS;
      await this.transfer(id, from, to, amount);
      this.acknowledged.set(id, { from, to, amount });
    }
  }

  /** Runs all writers, and kills in turn after some progress. */
  async run(kills) {
    const writers = Array.from({ length: WRITERS }, (_, writer) => this.write(writer));
    const killer = (async () => {
      for (const kill of kills) {
        const target = this.acknowledged.size + PROGRESS;
        while (this.acknowledged.size < target) await sleep(10);
        await kill();
      }
      const target = this.acknowledged.size + PROGRESS;
      while (this.acknowledged.size < target) await sleep(10);
    })();
    await killer.finally(() => { this.isOver = true; });
    await Promise.all(writers);
  }

  /** Compares the accounts with the acknowledged transfers, and returns what does not fit. */
  async audit() {
    const ids = [...this.acknowledged.keys()];
    const found = await this.contents(this.entries, ids);
    const lost = ids.filter((id) => !found.get(id)).length;
    const expected = new Array(ACCOUNTS).fill(OPENING);
    for (const { from, to, amount } of this.acknowledged.values()) {
      expected[from] -= amount;
      expected[to] += amount;
    }
    const accounts = await this.contents(this.accounts, expected.map((_, number) => account(number)));
    const balances = expected.map((_, number) => accounts.get(account(number)).balance);
    const wrong = balances.filter((balance, number) => balance !== expected[number]).length;
    const sum = balances.reduce((sum, balance) => sum + balance, 0);
    return { lost, wrong, created: sum - ACCOUNTS * OPENING };
  }

  async contents(index, ids) {
    const contents = new Map();
    for (const id of ids) {
      const found = await this.client.get({ index, id }, { ignore: [404] });
      contents.set(id, found.found ? found._source : undefined);
    }
    return contents;
  }

  summary() {
    return `${this.acknowledged.size} transfers, ${this.failures} failed attempts`;
  }
}

test("helper loses nothing through the gateway, and does without it", {
  skip: !process.env.TXN_XTASK && "set TXN_XTASK to the path of the program xtask",
  timeout: 900_000,
}, async (context) => {
  const server = await Server.start("elasticsearch");
  context.after(() => server.stop());

  const direct = new Bank(server.url, "direct");
  context.after(() => direct.client.close());
  await direct.open();
  await direct.run([() => server.restart()]);
  const without = await direct.audit();
  context.diagnostic(`directly: ${direct.summary()}, ${JSON.stringify(without)}`);
  assert(without.wrong > 0 && without.created !== 0, "the server keeps bulks together by itself");

  const gateway = await Gateway.start(await initialise(server.url, "bank", ["bank-accounts", "bank-entries"]));
  context.after(() => gateway.stop());
  const bank = new Bank(gateway.url, "bank");
  context.after(() => bank.client.close());
  await bank.open();
  const killGateway = async () => {
    await gateway.kill();
    await gateway.run();
  };
  const kills = Array.from({ length: KILLS }, (_, number) => (number % 2 === 0 ? killGateway : () => server.restart()));
  await bank.run(kills);
  const through = await bank.audit();
  context.diagnostic(`through the gateway: ${bank.summary()}, ${JSON.stringify(through)}`);
  assert.deepEqual(through, { lost: 0, wrong: 0, created: 0 });
});
