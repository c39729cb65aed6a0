/** Orders an apple: takes it from the stock and inserts the order, in one transaction. */

import { Client, type Transaction } from "../src/index.js";

const client = new Client(process.env.TXN_GATEWAY_URL);

async function order(transaction: Transaction): Promise<number> {
  const apple = await transaction.get<{ left: number }>("stock", "apple");
  if (apple === null || apple.left < 1) throw new Error("sold out");
  transaction.merge("stock", "apple", { left: apple.left - 1 });
  transaction.insert("orders", crypto.randomUUID(), { item: "apple" });
  return apple.left - 1;
}

await client.transact((transaction) => transaction.put("stock", "apple", { left: 10 }));
console.log(`${await client.transact(order)} apples are left`);
