"""The requests that the official clients send for one bulk, by the kind of the answer."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import unittest
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict, List

import elasticsearch
import opensearchpy

EXPECTED = json.loads((Path(__file__).resolve().parents[1] / "counts.json").read_text())
BULK = [
    {"create": {"_index": "counted", "_id": "1"}}, {"a": 1},
    {"index": {"_index": "counted", "_id": "2"}}, {"a": 1},
]
# A slow answer comes after this request timeout, in seconds.
TIMEOUT = 1.0


class SlowServer(ThreadingHTTPServer):
    """Answers no bulk until it is closed. Otherwise it is like a gateway of the program `counted`."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), SlowHandler)
        self.statuses: List[int] = []
        self.is_closed = threading.Event()

    def server_close(self) -> None:
        self.is_closed.set()
        super().server_close()


class SlowHandler(BaseHTTPRequestHandler):
    server: SlowServer

    def do_POST(self) -> None:
        self.server.statuses.append(0)
        self.server.is_closed.wait()
        self.close_connection = True

    do_PUT = do_POST

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.server.statuses).encode())
        self.server.statuses.clear()

    def log_message(self, *_: object) -> None:
        pass


class CountsTest(unittest.TestCase):
    maxDiff = None

    def addresses(self) -> Dict[str, str]:
        """Starts the gateways, and returns their addresses by the kind of their answers."""
        program = os.path.abspath(os.environ["TXN_COUNTED_PROGRAM"])
        gateways = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(gateways.communicate)
        assert gateways.stdout is not None
        addresses: Dict[str, str] = json.loads(gateways.stdout.readline())
        slow = SlowServer()
        threading.Thread(target=slow.serve_forever, daemon=True).start()
        self.addCleanup(slow.server_close)
        self.addCleanup(slow.shutdown)
        return {**addresses, "slow": f"http://127.0.0.1:{slow.server_port}"}

    def check(self, name: str, connect: Any, timeout: str, errors: Any) -> None:
        """Sends a bulk to each gateway. `timeout` is the name of the option of the client."""
        answered = {}
        for kind, address in self.addresses().items():
            client = connect(address, **({timeout: TIMEOUT} if kind == "slow" else {}))
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
        self.check(name, elasticsearch.Elasticsearch, "request_timeout", errors)

    @unittest.skipUnless("TXN_COUNTED_PROGRAM" in os.environ, "set TXN_COUNTED_PROGRAM to the program counted")
    def test_opensearch_client_sends_as_documented(self) -> None:
        errors = opensearchpy.exceptions.TransportError
        self.check("Python, OpenSearch 3", opensearchpy.OpenSearch, "timeout", errors)


if __name__ == "__main__":
    unittest.main()
