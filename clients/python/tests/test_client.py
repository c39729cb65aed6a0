"""The client against a gateway process."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List

from txn_gateway import Client, Conflict, GatewayError, Refused, Transaction, Unavailable, UnknownOutcome

from .gateway import Gateway, Proxy, free_port

READ, COMMIT = "/_txn/read", "/_txn/commit"


def take(transaction: Transaction) -> int:
    apple = transaction.get("stock", "apple")
    assert apple is not None
    transaction.put("stock", "apple", {**apple, "left": apple["left"] - 1})
    return int(apple["left"]) - 1


def first(times: int, answer: Any) -> Callable[[Any], Any]:
    """A rule for the first commits. All other requests pass."""
    commits: List[str] = []

    def rule(request: Any) -> Any:
        if request.path == COMMIT:
            commits.append(request.path)
        return answer if request.path == COMMIT and len(commits) <= times else "pass"

    return rule


class ClientTest(unittest.TestCase):
    gateway: Gateway

    @classmethod
    def setUpClass(cls) -> None:
        cls.gateway = Gateway()
        cls.addClassCleanup(cls.gateway.stop)

    def setUp(self) -> None:
        self.proxy = Proxy(self.gateway)
        self.addCleanup(self.proxy.stop)
        self.client = self.another(self.proxy.url)
        self.gateway.put("stock", "apple", {"left": 10})

    def another(self, url: str, **options: Any) -> Client:
        client = Client(url, **options)
        self.addCleanup(client.close)
        return client

    def left(self) -> int:
        return int(self.gateway.get("stock", "apple")["left"])

    def sum(self, transaction: Transaction, is_first: bool) -> int:
        """Reads two documents. In the first attempt, other commits between the reads change both."""
        apple = transaction.get("stock", "apple")
        if is_first:
            self.gateway.put("stock", "apple", {"left": 5})
            self.gateway.put("stock", "pear", {"left": 5})
        pear = transaction.get("stock", "pear")
        assert apple is not None and pear is not None
        return int(apple["left"]) + int(pear["left"])

    def test_addresses_need_a_scheme(self) -> None:
        for url in ("127.0.0.1:9280", "localhost:9280", "ftp://localhost", "http://"):
            with self.subTest(url), self.assertRaisesRegex(ValueError, "is no address such as"):
                Client(url)

    def test_concurrent_transfers_keep_the_sum(self) -> None:
        accounts = ["a", "b", "c"]
        for account in accounts:
            self.gateway.put("accounts", account, {"balance": 100})
        client = self.another(self.gateway.url, attempts=1000)

        def transfer(number: int) -> None:
            source, target = accounts[number % 3], accounts[(number + 1 + number % 2) % 3]

            def closure(transaction: Transaction) -> None:
                for account, amount in ((source, -1), (target, 1)):
                    document = transaction.get("accounts", account)
                    assert document is not None
                    transaction.put("accounts", account, {"balance": document["balance"] + amount})

            client.transact(closure)

        expected = {account: 100 for account in accounts}
        for number in range(120):
            expected[accounts[number % 3]] -= 1
            expected[accounts[(number + 1 + number % 2) % 3]] += 1
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(transfer, range(120)))
        balances = {account: self.gateway.get("accounts", account)["balance"] for account in accounts}
        self.assertEqual(balances, expected)

    def test_changed_contents_need_no_second_read(self) -> None:
        seen = []

        def closure(transaction: Transaction) -> int:
            apple = transaction.get("stock", "apple")
            assert apple is not None
            seen.append(apple["left"])
            if len(seen) == 1:
                self.gateway.put("stock", "apple", {"left": 5})
            transaction.merge("stock", "apple", {"left": apple["left"] - 1})
            return int(apple["left"]) - 1

        self.assertEqual(self.client.transact(closure), 4)
        self.assertEqual(seen, [10, 5])
        self.assertEqual(self.left(), 4)
        self.assertEqual(self.proxy.paths(), [READ, COMMIT, COMMIT])
        keys = {request.key for request in self.proxy.commits()}
        self.assertEqual(len(keys), 2)

    def test_third_attempt_reads_for_update(self) -> None:
        seen = []

        def closure(transaction: Transaction) -> None:
            apple = transaction.get("stock", "apple")
            assert apple is not None
            seen.append(apple["left"])
            if len(seen) < 3:
                self.gateway.put("stock", "apple", {"left": len(seen)})
            transaction.put("stock", "apple", {"left": apple["left"] + 10})

        self.client.transact(closure)
        self.assertEqual((seen, self.left()), ([10, 1, 2], 12))
        self.assertEqual(self.proxy.paths(), [READ, COMMIT, COMMIT, READ, COMMIT])

    def test_closures_for_update_follow_each_other(self) -> None:
        def increment(_: int) -> None:
            self.client.transact(lambda transaction: take(transaction), for_update=True)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(increment, range(40)))
        self.assertEqual(self.left(), -30)
        # Without reservations, 8 threads need several times as many commits.
        self.assertLess(len(self.proxy.commits()), 80)

    def test_closure_for_update_may_only_read(self) -> None:
        left = self.client.transact(lambda transaction: transaction.get("stock", "apple"), for_update=True)
        self.assertEqual(left, {"left": 10})
        none: Dict[str, int] = {}
        with self.assertRaises(LookupError):
            self.client.transact(lambda transaction: none[str(transaction.get("stock", "apple"))], for_update=True)
        # A commit without operations confirms contents that may be undecided.
        self.assertEqual(self.proxy.paths(), [READ, COMMIT, READ, COMMIT])
        self.assertEqual({request.key for request in self.proxy.commits()}, {None})

    def test_lost_answer_has_one_effect(self) -> None:
        self.proxy.rule = first(2, "cut")
        self.client.transact(lambda transaction: transaction.add("stock", "apple", "/left", -1))
        self.assertEqual(self.left(), 9)
        keys = [request.key for request in self.proxy.commits()]
        self.assertEqual((len(keys), len(set(keys))), (3, 1))

    def test_changed_answer_may_be_lost(self) -> None:
        self.proxy.rule = first(1, "cut")
        runs = []

        def closure(transaction: Transaction) -> None:
            runs.append(take(transaction))
            if len(runs) == 1:
                self.gateway.put("stock", "apple", {"left": 5})

        self.client.transact(closure)
        self.assertEqual((runs, self.left()), ([9, 4], 4))

    def test_lost_conflict_reads_again(self) -> None:
        self.gateway.put("stock", "pear", {"left": 10})
        self.proxy.rule = first(1, "cut")
        sums: List[int] = []

        def closure(transaction: Transaction) -> int:
            sums.append(self.sum(transaction, is_first=not sums))
            if len(sums) == 1:
                transaction.put("stock", "sum", {"left": sums[0]})
            return sums[-1]

        self.assertEqual((self.client.transact(closure), sums), (10, [15, 10]))
        # The repeated answer has no contents.
        self.assertEqual(self.proxy.paths(), [READ, READ, COMMIT, COMMIT, READ, READ, COMMIT])
        lost, repeated, compared = [request.key for request in self.proxy.commits()]
        self.assertIsNotNone(lost)
        self.assertEqual((repeated, compared), (lost, None))

    def test_error_of_stale_reads_is_not_raised(self) -> None:
        self.gateway.put("stock", "pear", {"left": 10})
        self.proxy.rule = first(1, (409, {}, {"code": "changed", "changed": []}))
        sums: List[int] = []

        def closure(transaction: Transaction) -> None:
            sums.append(self.sum(transaction, is_first=not sums))
            if len(sums) == 2 and sums[1] != 10:
                raise AssertionError("the second attempt used stale reads")
            transaction.put("stock", "sum", {"left": sums[-1]})

        self.client.transact(closure)
        self.assertEqual((sums, self.gateway.get("stock", "sum")), ([15, 10], {"left": 10}))

    def test_unknown_outcome_is_repeated_by_the_caller(self) -> None:
        self.proxy.rule = first(1_000_000, "cut")
        with self.assertRaises(UnknownOutcome) as raised:
            self.client.transact(take, timeout=0.5)
        self.assertEqual(self.left(), 9)
        self.proxy.rule = lambda request: "pass"
        self.client.repeat(raised.exception)
        self.assertEqual(self.left(), 9)

    def test_doubt_outlives_refusals(self) -> None:
        full = (429, {"Retry-After": "60"}, {"code": "overloaded"})
        answers = iter(["cut"])
        self.proxy.rule = lambda request: "pass" if request.path == READ else next(answers, full)
        with self.assertRaises(UnknownOutcome):
            self.client.transact(take)
        self.assertEqual(self.left(), 9)

    def test_unknown_outcome_has_a_tid(self) -> None:
        add = {"add": {"target": {"collection": "stock", "id": "apple"}, "path": "/left", "amount": 1}}
        insert = {"put": {"target": {"collection": "stock", "id": "pear"}, "document": {}}}
        tid = self.gateway.request("POST", "/_txn", {"operations": [add, insert]})[2]["tid"]
        self.proxy.rule = first(1, (500, {}, {"code": "unknown", "tid": tid}))
        with self.assertRaises(UnknownOutcome) as raised:
            self.client.transact(take)
        self.assertEqual(raised.exception.tid, tid)
        self.assertEqual(self.client.outcome(tid), "committed")
        self.assertEqual(len(self.proxy.commits()), 1)

    def test_commit_has_a_tid(self) -> None:
        runs: List[Transaction] = []
        client = self.another(self.gateway.url)

        def closure(transaction: Transaction) -> None:
            runs.append(transaction)
            take(transaction)

        client.transact(closure)
        self.assertEqual(client.outcome(runs[0].tid or ""), "committed")

    def test_passing_refusals_are_repeated(self) -> None:
        answers = iter([(429, {"Retry-After": "0"}, {"code": "overloaded"}), (503, {}, {"code": "unavailable"}),
                        (502, {}, "a proxy"), (503, {}, {"code": "unknown"}), (409, {}, {"code": "conflict"})])
        self.proxy.rule = lambda request: next(answers, "pass")
        self.assertEqual(self.client.transact(take), 9)
        self.assertEqual(self.left(), 9)
        self.assertEqual(len(self.proxy.requests), 7)

    def test_retry_after_beyond_the_deadline_ends(self) -> None:
        self.proxy.rule = lambda request: (503, {"Retry-After": "60"}, {"code": "unavailable"})
        with self.assertRaises(Unavailable):
            self.client.transact(take)
        self.assertEqual(self.proxy.paths(), [READ])

    def test_missing_gateway_is_unavailable(self) -> None:
        client = Client(f"http://127.0.0.1:{free_port()}", timeout=0.2)
        with self.assertRaises(Unavailable):
            client.transact(lambda transaction: transaction.put("stock", "apple", {"left": 1}))

    def test_refused_operation_changes_nothing(self) -> None:
        def closure(transaction: Transaction) -> None:
            transaction.put("orders", "refused", {"item": "apple"})
            transaction.add("stock", "apple", "/left", -11, min=0)

        with self.assertRaises(Refused) as raised:
            self.client.transact(closure)
        self.assertEqual((raised.exception.code, self.left()), ("refused", 10))
        self.assertIsNone(self.client.transact(lambda transaction: transaction.get("orders", "refused")))

    def test_insert_of_an_existing_document_is_refused(self) -> None:
        with self.assertRaises(Refused) as raised:
            self.client.transact(lambda transaction: transaction.insert("stock", "apple", {"left": 1}))
        self.assertEqual((raised.exception.code, raised.exception.status, self.left()), ("exists", 409, 10))

    def test_error_of_the_closure_writes_nothing(self) -> None:
        def closure(transaction: Transaction) -> None:
            take(transaction)
            raise KeyError("sold out")

        with self.assertRaises(KeyError):
            self.client.transact(closure)
        self.assertEqual((self.left(), self.proxy.paths()), (10, [READ]))

    def test_error_from_mixed_moments_is_not_raised(self) -> None:
        self.gateway.put("stock", "pear", {"left": 10})
        runs = []

        def closure(transaction: Transaction) -> None:
            apple = transaction.get("stock", "apple")
            runs.append(apple)
            if len(runs) == 1:
                self.gateway.put("stock", "apple", {"left": 5})
                self.gateway.put("stock", "pear", {"left": 5})
            if transaction.get("stock", "pear") != apple:
                raise AssertionError("the contents are of different moments")

        self.client.transact(closure)
        self.assertEqual(runs, [{"left": 10}, {"left": 5}])

    def test_attempts_are_bounded(self) -> None:
        runs = []

        def closure(transaction: Transaction) -> None:
            runs.append(take(transaction))
            self.gateway.put("stock", "apple", {"left": 100 + len(runs)})

        with self.assertRaises(Conflict):
            self.another(self.proxy.url, attempts=3).transact(closure)
        self.assertEqual((len(runs), self.left()), (3, 103))

    def test_reads_of_one_moment_need_no_commit(self) -> None:
        def closure(transaction: Transaction) -> Any:
            return transaction.get_all(("stock", "apple"), ("stock", "none"), ("stock", "apple"))

        self.assertEqual(self.client.transact(closure), [{"left": 10}, None, {"left": 10}])
        self.assertEqual(self.proxy.paths(), [READ])

    def test_absence_is_checked_at_the_commit(self) -> None:
        runs = []

        def closure(transaction: Transaction) -> None:
            runs.append(transaction.get("stock", "plum"))
            if len(runs) == 1:
                self.gateway.put("stock", "plum", {"left": 1})
            transaction.put("stock", "apple", {"left": len(runs)})

        self.client.transact(closure)
        self.assertEqual((runs, self.left()), ([None, {"left": 1}], 2))

    def test_own_writes_are_read(self) -> None:
        def closure(transaction: Transaction) -> None:
            transaction.put("stock", "apple", {"left": 3})
            self.assertEqual(transaction.get("stock", "apple"), {"left": 3})
            transaction.delete("stock", "apple")
            self.assertIsNone(transaction.get("stock", "apple"))
            transaction.insert("stock", "apple", {"left": 1, "place": "a"})
            transaction.add("stock", "apple", "/left", 1)
            transaction.patch("stock", "apple", [{"op": "remove", "path": "/place"}])
            with self.assertRaises(ValueError):
                transaction.get("stock", "apple")

        self.client.transact(closure)
        self.assertEqual(self.gateway.get("stock", "apple"), {"left": 2})

    def test_documents_belong_to_the_closure(self) -> None:
        def closure(transaction: Transaction) -> None:
            apple = transaction.get("stock", "apple")
            assert apple is not None
            transaction.put("stock", "apple", apple)
            apple["left"] = -1
            self.assertEqual(transaction.get("stock", "apple"), {"left": 10})

        self.client.transact(closure)
        self.assertEqual(self.left(), 10)

    def test_routing_is_part_of_the_address(self) -> None:
        def closure(transaction: Transaction) -> Any:
            transaction.put("stock", "routed", {"left": 1}, routing="r")

        self.client.transact(closure)
        read = lambda transaction: transaction.get("stock", "routed", routing="r")  # noqa: E731
        self.assertEqual(self.client.transact(read), {"left": 1})

    def test_large_request_is_refused(self) -> None:
        text = "x" * (17 << 20)
        with self.assertRaises(GatewayError) as raised:
            self.another(self.gateway.url).transact(lambda transaction: transaction.put("stock", "apple", {"text": text}))
        self.assertEqual((raised.exception.status, raised.exception.code), (413, "too_large"))
        self.assertEqual(self.left(), 10)

    def test_too_many_operations_are_refused(self) -> None:
        def closure(transaction: Transaction) -> None:
            for number in range(5001):
                transaction.put("stock", str(number), {})

        with self.assertRaises(GatewayError) as raised:
            self.client.transact(closure)
        self.assertEqual((raised.exception.status, raised.exception.code), (413, "too_large"))

    def test_unfit_token_is_refused_and_not_shown(self) -> None:
        for token in ("secret\n", "sec ret", ""):
            with self.assertRaises(ValueError) as raised:
                Client(self.gateway.url, token=token)
            self.assertNotIn("secret", str(raised.exception))

    def test_token_is_sent(self) -> None:
        self.another(self.proxy.url, token="secret").transact(take)
        self.assertEqual({request.authorization for request in self.proxy.requests}, {"Bearer secret"})

    def test_example_runs(self) -> None:
        folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        environment = {**os.environ, "TXN_GATEWAY_URL": self.gateway.url, "PYTHONPATH": folder}
        program = [sys.executable, os.path.join(folder, "examples", "order.py")]
        done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
        self.assertEqual((done.stdout, self.left()), ("9 apples are left\n", 9))


if __name__ == "__main__":
    unittest.main()
