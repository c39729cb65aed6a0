"""Orders an apple: takes it from the stock and inserts the order, in one transaction."""

import os
import uuid

from txn_gateway import Client, Transaction


class SoldOut(Exception):
    pass


def order(transaction: Transaction) -> int:
    apple = transaction.get("stock", "apple")
    if apple is None or apple["left"] < 1:
        raise SoldOut
    transaction.merge("stock", "apple", {"left": apple["left"] - 1})
    transaction.insert("orders", uuid.uuid4().hex, {"item": "apple"})
    return int(apple["left"]) - 1


client = Client(os.environ.get("TXN_GATEWAY_URL", "http://127.0.0.1:9280"))
client.transact(lambda transaction: transaction.put("stock", "apple", {"left": 10}))
print(f"{client.transact(order)} apples are left")
