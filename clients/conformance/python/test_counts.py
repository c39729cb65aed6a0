"""The requests that the official clients send for one bulk, by the kind of the answer."""

from __future__ import annotations

import json
import os
import subprocess
import unittest
import urllib.request
from pathlib import Path
from typing import Any, Dict

import elasticsearch
import opensearchpy

EXPECTED = json.loads((Path(__file__).resolve().parents[1] / "counts.json").read_text())
BULK = [
    {"create": {"_index": "counted", "_id": "1"}}, {"a": 1},
    {"index": {"_index": "counted", "_id": "2"}}, {"a": 1},
]


class CountsTest(unittest.TestCase):
    maxDiff = None

    def addresses(self) -> Dict[str, str]:
        """Starts the gateways, and returns their addresses by the kind of their answers."""
        program = os.path.abspath(os.environ["TXN_COUNTED_PROGRAM"])
        gateways = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(gateways.communicate)
        assert gateways.stdout is not None
        addresses: Dict[str, str] = json.loads(gateways.stdout.readline())
        return addresses

    def check(self, name: str, connect: Any, errors: Any) -> None:
        answered = {}
        for kind, address in self.addresses().items():
            client = connect(address)
            if kind == "committed":
                client.bulk(body=BULK)
            else:
                self.assertRaises(errors, client.bulk, body=BULK)
            client.close()
            with urllib.request.urlopen(f"{address}/_counted") as answer:
                answered[kind] = json.load(answer)
        statuses = EXPECTED["statuses"]
        expected = {kind: [statuses[kind]] * count for kind, count in EXPECTED["requests"][name].items()}
        self.assertEqual(answered, expected)

    @unittest.skipUnless("TXN_COUNTED_PROGRAM" in os.environ, "set TXN_COUNTED_PROGRAM to the program counted")
    def test_elasticsearch_client_sends_as_documented(self) -> None:
        name = f"Python, Elasticsearch {elasticsearch.__version__[0]}"
        errors = (elasticsearch.ApiError, elasticsearch.TransportError)
        self.check(name, elasticsearch.Elasticsearch, errors)

    @unittest.skipUnless("TXN_COUNTED_PROGRAM" in os.environ, "set TXN_COUNTED_PROGRAM to the program counted")
    def test_opensearch_client_sends_as_documented(self) -> None:
        self.check("Python, OpenSearch 3", opensearchpy.OpenSearch, opensearchpy.exceptions.TransportError)


if __name__ == "__main__":
    unittest.main()
