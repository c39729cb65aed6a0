/** The client against a gateway process. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Client, Conflict, GatewayError, Refused, Unavailable, UnknownOutcome, type Transaction } from "../src/index.js";
import { Gateway, Proxy, freePort, type Replaced, type Rule } from "./gateway.js";

const READ = "/_txn/read";
const COMMIT = "/_txn/commit";
interface Stock { left: number }

let gateway: Gateway;
let proxy: Proxy;
let client: Client;

before(async () => { gateway = await Gateway.start(); });
after(async () => { await gateway.stop(); });
beforeEach(async () => {
  proxy = await Proxy.start(gateway);
  client = new Client(proxy.url);
  await gateway.put("stock", "apple", { left: 10 });
});
afterEach(async () => { await proxy.stop(); });

async function left(): Promise<number> {
  return (await gateway.get("stock", "apple")).left;
}

async function take(transaction: Transaction): Promise<number> {
  const apple = await transaction.get<Stock>("stock", "apple");
  assert(apple);
  transaction.put("stock", "apple", { ...apple, left: apple.left - 1 });
  return apple.left - 1;
}

/** A rule for the first commits. All other requests pass. */
function first(times: number, answer: "cut" | Replaced): Rule {
  let commits = 0;
  return ({ path }) => (path === COMMIT && ++commits <= times ? answer : "pass");
}

/** Returns the error of a promise. */
async function failure<E extends Error>(promise: Promise<unknown>, kind: abstract new (...args: any[]) => E): Promise<E> {
  const error = await promise.then(() => undefined, (error: unknown) => error);
  assert(error instanceof kind, `${String(error)} is no ${kind.name}`);
  return error;
}

test("addresses need a scheme", () => {
  for (const url of ["127.0.0.1:9280", "localhost:9280", "ftp://localhost", "http://"]) {
    assert.throws(() => new Client(url), /is no address such as/, url);
  }
});

test("concurrent transfers keep the sum", async () => {
  const accounts = ["a", "b", "c"];
  const expected: Record<string, number> = { a: 100, b: 100, c: 100 };
  for (const account of accounts) await gateway.put("accounts", account, { balance: 100 });
  const patient = new Client(gateway.url, { attempts: 1_000, timeout: 120_000 });
  const transfer = async (number: number): Promise<void> => {
    const [source, target] = [accounts[number % 3]!, accounts[(number + 1 + (number % 2)) % 3]!];
    expected[source]! -= 1;
    expected[target]! += 1;
    await patient.transact(async (transaction) => {
      for (const [account, amount] of [[source, -1], [target, 1]] as const) {
        const document = await transaction.get<{ balance: number }>("accounts", account);
        transaction.put("accounts", account, { balance: document!.balance + amount });
      }
    });
  };
  const numbers = Array.from({ length: 120 }, (_, number) => number);
  await Promise.all(Array.from({ length: 8 }, async () => {
    for (let number = numbers.pop(); number !== undefined; number = numbers.pop()) await transfer(number);
  }));
  for (const account of accounts) assert.equal((await gateway.get("accounts", account)).balance, expected[account]);
});

test("changed contents need no second read", async () => {
  const seen: number[] = [];
  const value = await client.transact(async (transaction) => {
    const apple = await transaction.get<Stock>("stock", "apple");
    seen.push(apple!.left);
    if (seen.length === 1) await gateway.put("stock", "apple", { left: 5 });
    transaction.merge("stock", "apple", { left: apple!.left - 1 });
    return apple!.left - 1;
  });
  assert.deepEqual([value, seen, await left()], [4, [10, 5], 4]);
  assert.deepEqual(proxy.paths(), [READ, COMMIT, COMMIT]);
  assert.equal(new Set(proxy.commits().map(({ key }) => key)).size, 2);
});

test("third attempt reads for update", async () => {
  const seen: number[] = [];
  await client.transact(async (transaction) => {
    const apple = await transaction.get<Stock>("stock", "apple");
    seen.push(apple!.left);
    if (seen.length < 3) await gateway.put("stock", "apple", { left: seen.length });
    transaction.put("stock", "apple", { left: apple!.left + 10 });
  });
  assert.deepEqual([seen, await left()], [[10, 1, 2], 12]);
  assert.deepEqual(proxy.paths(), [READ, COMMIT, COMMIT, READ, COMMIT]);
});

test("closures for update follow each other", async () => {
  const worker = async (): Promise<void> => {
    for (let round = 0; round < 5; round++) await client.transact(take, { forUpdate: true });
  };
  await Promise.all(Array.from({ length: 8 }, worker));
  assert.equal(await left(), -30);
  // Without reservations, 8 workers need several times as many commits.
  assert(proxy.commits().length < 80, `${proxy.commits().length} commits`);
});

test("closure for update may only read", async () => {
  const read = (transaction: Transaction): Promise<Stock | null> => transaction.get<Stock>("stock", "apple");
  assert.deepEqual(await client.transact(read, { forUpdate: true }), { left: 10 });
  // A commit without operations confirms contents that may be undecided.
  assert.deepEqual(proxy.paths(), [READ, COMMIT]);
  assert.equal(proxy.commits()[0]!.key, undefined);
});

test("lost answer has one effect", async () => {
  proxy.rule = first(2, "cut");
  await client.transact((transaction) => transaction.add("stock", "apple", "/left", -1));
  assert.equal(await left(), 9);
  const keys = proxy.commits().map(({ key }) => key);
  assert.deepEqual([keys.length, new Set(keys).size], [3, 1]);
});

test("changed answer may be lost", async () => {
  proxy.rule = first(1, "cut");
  const runs: number[] = [];
  await client.transact(async (transaction) => {
    runs.push(await take(transaction));
    if (runs.length === 1) await gateway.put("stock", "apple", { left: 5 });
  });
  assert.deepEqual([runs, await left()], [[9, 4], 4]);
});

/** Reads two documents. In the first attempt, other commits between the reads change both. */
async function sum(transaction: Transaction, isFirst: boolean): Promise<number> {
  const apple = await transaction.get<Stock>("stock", "apple");
  if (isFirst) {
    await gateway.put("stock", "apple", { left: 5 });
    await gateway.put("stock", "pear", { left: 5 });
  }
  const pear = await transaction.get<Stock>("stock", "pear");
  return apple!.left + pear!.left;
}

test("lost conflict reads again", async () => {
  await gateway.put("stock", "pear", { left: 10 });
  proxy.rule = first(1, "cut");
  const sums: number[] = [];
  const value = await client.transact(async (transaction) => {
    const left = await sum(transaction, sums.length === 0);
    sums.push(left);
    if (sums.length === 1) transaction.put("stock", "sum", { left });
    return left;
  });
  assert.deepEqual([value, sums], [10, [15, 10]]);
  // The repeated answer has no contents.
  assert.deepEqual(proxy.paths(), [READ, READ, COMMIT, COMMIT, READ, READ, COMMIT]);
  const [lost, repeated, compared] = proxy.commits().map(({ key }) => key);
  assert.notEqual(lost, undefined);
  assert.deepEqual([repeated, compared], [lost, undefined]);
});

test("error of stale reads is not raised", async () => {
  await gateway.put("stock", "pear", { left: 10 });
  proxy.rule = first(1, { status: 409, body: { code: "changed", changed: [] } });
  const sums: number[] = [];
  await client.transact(async (transaction) => {
    const left = await sum(transaction, sums.length === 0);
    sums.push(left);
    if (sums.length === 2) assert.equal(left, 10);
    transaction.put("stock", "sum", { left });
  });
  assert.deepEqual([sums, await gateway.get("stock", "sum")], [[15, 10], { left: 10 }]);
});

test("unknown outcome is repeated by the caller", async () => {
  proxy.rule = first(Infinity, "cut");
  const error = await failure(client.transact(take, { timeout: 500 }), UnknownOutcome);
  assert.equal(await left(), 9);
  proxy.rule = () => "pass";
  await client.repeat(error);
  assert.equal(await left(), 9);
});

test("doubt outlives refusals", async () => {
  const full = { status: 429, headers: { "Retry-After": "60" }, body: { code: "overloaded" } };
  const answers: ("cut" | undefined)[] = ["cut"];
  proxy.rule = ({ path }) => (path === READ ? "pass" : answers.pop() ?? full);
  await failure(client.transact(take), UnknownOutcome);
  assert.equal(await left(), 9);
});

test("commit has a tid", async () => {
  const runs: Transaction[] = [];
  const direct = new Client(gateway.url);
  await direct.transact((transaction) => (runs.push(transaction), take(transaction)));
  assert.equal(await direct.outcome(runs[0]?.tid ?? ""), "committed");
});

test("unknown outcome has a tid", async () => {
  const add = { add: { target: { collection: "stock", id: "apple" }, path: "/left", amount: 1 } };
  const put = { put: { target: { collection: "stock", id: "pear" }, document: {} } };
  const { tid } = await gateway.request("POST", "/_txn", { operations: [add, put] });
  proxy.rule = first(1, { status: 500, body: { code: "unknown", tid } });
  const error = await failure(client.transact(take), UnknownOutcome);
  assert.equal(error.tid, tid);
  assert.equal(await client.outcome(tid), "committed");
  assert.equal(proxy.commits().length, 1);
});

test("passing refusals are repeated", async () => {
  const answers: Replaced[] = [
    { status: 429, headers: { "Retry-After": "0" }, body: { code: "overloaded" } },
    { status: 503, body: { code: "unavailable" } },
    { status: 502, body: "a proxy" },
    { status: 503, body: { code: "unknown" } },
    { status: 409, body: { code: "conflict" } },
  ];
  proxy.rule = () => answers.shift() ?? "pass";
  assert.equal(await client.transact(take), 9);
  assert.deepEqual([await left(), proxy.requests.length], [9, 7]);
});

test("Retry-After beyond the deadline ends", async () => {
  proxy.rule = () => ({ status: 503, headers: { "Retry-After": "60" }, body: { code: "unavailable" } });
  await failure(client.transact(take), Unavailable);
  assert.deepEqual(proxy.paths(), [READ]);
});

test("missing gateway is unavailable", async () => {
  const lonely = new Client(`http://127.0.0.1:${await freePort()}`, { timeout: 200 });
  await failure(lonely.transact((transaction) => transaction.put("stock", "apple", {})), Unavailable);
});

test("refused operation changes nothing", async () => {
  const error = await failure(client.transact((transaction) => {
    transaction.put("orders", "refused", { item: "apple" });
    transaction.add("stock", "apple", "/left", -11, { min: 0 });
  }), Refused);
  assert.deepEqual([error.code, await left()], ["refused", 10]);
  assert.equal(await client.transact((transaction) => transaction.get("orders", "refused")), null);
});

test("insert of an existing document is refused", async () => {
  const error = await failure(client.transact((tx) => tx.insert("stock", "apple", { left: 1 })), Refused);
  assert.deepEqual([error.code, error.status, await left()], ["exists", 409, 10]);
});

test("error of the closure writes nothing", async () => {
  await failure(client.transact(async (transaction) => {
    await take(transaction);
    throw new RangeError("sold out");
  }), RangeError);
  assert.deepEqual([await left(), proxy.paths()], [10, [READ]]);
});

test("error from mixed moments is not raised", async () => {
  await gateway.put("stock", "pear", { left: 10 });
  const runs: unknown[] = [];
  await client.transact(async (transaction) => {
    const apple = await transaction.get<Stock>("stock", "apple");
    runs.push(apple);
    if (runs.length === 1) {
      await gateway.put("stock", "apple", { left: 5 });
      await gateway.put("stock", "pear", { left: 5 });
    }
    assert.deepEqual(await transaction.get("stock", "pear"), apple);
  });
  assert.deepEqual(runs, [{ left: 10 }, { left: 5 }]);
});

test("attempts are bounded", async () => {
  let runs = 0;
  await failure(new Client(proxy.url, { attempts: 3 }).transact(async (transaction) => {
    await take(transaction);
    await gateway.put("stock", "apple", { left: 100 + ++runs });
  }), Conflict);
  assert.deepEqual([runs, await left()], [3, 103]);
});

test("reads of one moment need no commit", async () => {
  const [apple, none] = [{ collection: "stock", id: "apple" }, { collection: "stock", id: "none" }];
  const found = await client.transact((transaction) => transaction.getAll(apple, none, apple));
  assert.deepEqual(found, [{ left: 10 }, null, { left: 10 }]);
  assert.deepEqual(proxy.paths(), [READ]);
});

test("absence is checked at the commit", async () => {
  const runs: unknown[] = [];
  await client.transact(async (transaction) => {
    runs.push(await transaction.get("stock", "plum"));
    if (runs.length === 1) await gateway.put("stock", "plum", { left: 1 });
    transaction.put("stock", "apple", { left: runs.length });
  });
  assert.deepEqual([runs, await left()], [[null, { left: 1 }], 2]);
});

test("own writes are read", async () => {
  await client.transact(async (transaction) => {
    transaction.put("stock", "apple", { left: 3 });
    assert.deepEqual(await transaction.get("stock", "apple"), { left: 3 });
    transaction.delete("stock", "apple");
    assert.equal(await transaction.get("stock", "apple"), null);
    transaction.insert("stock", "apple", { left: 1, place: "a" });
    transaction.add("stock", "apple", "/left", 1);
    transaction.patch("stock", "apple", [{ op: "remove", path: "/place" }]);
    await failure(transaction.get("stock", "apple"), TypeError);
  });
  assert.deepEqual(await gateway.get("stock", "apple"), { left: 2 });
});

test("documents belong to the closure", async () => {
  await client.transact(async (transaction) => {
    const apple = await transaction.get<Stock>("stock", "apple");
    transaction.put("stock", "apple", apple!);
    apple!.left = -1;
    assert.deepEqual(await transaction.get("stock", "apple"), { left: 10 });
  });
  assert.equal(await left(), 10);
});

test("routing is part of the address", async () => {
  await client.transact((transaction) => transaction.put("stock", "routed", { left: 1 }, "r"));
  const read = (transaction: Transaction) => transaction.get("stock", "routed", "r");
  assert.deepEqual(await client.transact(read), { left: 1 });
});

test("large request is refused", async () => {
  const text = "x".repeat(17 << 20);
  const large = new Client(gateway.url).transact((tx) => tx.put("stock", "apple", { text }));
  const error = await failure(large, GatewayError);
  assert.deepEqual([error.status, error.code, await left()], [413, "too_large", 10]);
});

test("too many operations are refused", async () => {
  const error = await failure(client.transact((transaction) => {
    for (let number = 0; number <= 5_000; number++) transaction.put("stock", `${number}`, {});
  }), GatewayError);
  assert.deepEqual([error.status, error.code], [413, "too_large"]);
});

test("unfit token is refused and not shown", () => {
  for (const token of ["secret\n", "sec ret", ""]) {
    assert.throws(() => new Client(proxy.url, { token }), (error: Error) => !error.message.includes("secret"));
  }
});

test("token is sent", async () => {
  await new Client(proxy.url, { token: "secret" }).transact(take);
  assert.deepEqual(new Set(proxy.requests.map(({ authorization }) => authorization)), new Set(["Bearer secret"]));
});

test("example runs", async () => {
  const program = fileURLToPath(new URL("../examples/order.js", import.meta.url));
  const env = { ...process.env, TXN_GATEWAY_URL: gateway.url };
  const { stdout } = await promisify(execFile)(process.execPath, [program], { env });
  assert.deepEqual([stdout, await left()], ["9 apples are left\n", 9]);
});
