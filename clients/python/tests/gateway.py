"""A gateway process, and a proxy that records its requests and interferes with them."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple
from urllib.request import Request as UrlRequest, urlopen


class Recorded(NamedTuple):
    method: str
    path: str
    key: Optional[str]
    authorization: Optional[str]


# An answer that replaces that of the gateway: status, headers, body.
Answer = Tuple[int, Dict[str, str], Any]
# Returns "pass", "cut" after the request was carried out, or an answer.
Rule = Callable[[Recorded], Any]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Gateway:
    """`txn serve` with an embedded file in a temporary folder."""

    def __init__(self, *options: str) -> None:
        program = os.environ.get("TXN_GATEWAY_PROGRAM")
        if not program:
            raise RuntimeError("set TXN_GATEWAY_PROGRAM to the path of the program txn")
        self.folder = tempfile.mkdtemp()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [os.path.abspath(program), "serve", "--listen", f"127.0.0.1:{self.port}", *options]
        self.process = subprocess.Popen(command, cwd=self.folder, stderr=subprocess.DEVNULL)
        while not self.is_ready():
            if self.process.poll() is not None:
                raise RuntimeError("the gateway has ended")
            time.sleep(0.02)

    def is_ready(self) -> bool:
        try:
            return bool(self.request("GET", "/readyz")[0] == 200)
        except OSError:
            return False

    def request(self, method: str, path: str, body: Any = None) -> Tuple[int, Any, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = UrlRequest(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urlopen(request) as response:
            text = response.read()
            is_json = response.headers.get_content_type() == "application/json"
            return response.status, response.headers, json.loads(text) if is_json else text

    def put(self, collection: str, id: str, document: Any) -> None:
        self.request("PUT", f"/{collection}/_doc/{id}", document)

    def get(self, collection: str, id: str) -> Any:
        return self.request("GET", f"/{collection}/_doc/{id}")[2]["_source"]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder)


class Proxy:
    """Forwards requests to a gateway as a rule says, and records them."""

    def __init__(self, gateway: Gateway) -> None:
        self.requests: List[Recorded] = []
        self.rule: Rule = lambda request: "pass"
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                key, login = self.headers.get("Idempotency-Key"), self.headers.get("Authorization")
                request = Recorded(self.command, self.path, key, login)
                proxy.requests.append(request)
                rule = proxy.rule(request)
                if isinstance(rule, tuple):
                    status, headers, answer = rule
                    return self.reply(status, headers, json.dumps(answer).encode())
                connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
                headers = {name: self.headers[name] for name in ("Content-Type", "Idempotency-Key")
                           if name in self.headers}
                connection.request(self.command, self.path, body, headers)
                response = connection.getresponse()
                answer = response.read()
                connection.close()
                if rule == "cut":
                    self.close_connection = True
                    return None
                return self.reply(response.status, {}, answer)

            def reply(self, status: int, headers: Dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = handle_any

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def paths(self) -> List[str]:
        return [request.path for request in self.requests]

    def commits(self) -> List[Recorded]:
        return [request for request in self.requests if request.path.startswith("/_txn/commit")]

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
