"""Transactions over HTTP, through a gateway (`txn serve`)."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import re
import ssl
import time
import uuid
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, TypeVar
from urllib.parse import quote, urlsplit

__all__ = ["Client", "Conflict", "GatewayError", "Refused", "Transaction", "Unavailable", "UnknownOutcome"]

T = TypeVar("T")
Document = Dict[str, Any]
Target = Tuple[str, str, Optional[str]]

SHORTEST_PAUSE, LONGEST_PAUSE = 0.01, 2.0
# The first attempt that reserves its documents, unless the caller asks for all.
RESERVES_FROM = 2
# Codes of answers that the gateway stores under an idempotency key.
STORED = ("changed", "exists", "refused")
COMPUTED = object()


class GatewayError(Exception):
    """A failed request. Nothing was changed, except after `UnknownOutcome`."""

    def __init__(self, detail: str, status: int = 0, problem: Optional[Document] = None) -> None:
        super().__init__(detail)
        self.status = status
        self.problem = problem or {}
        self.code: Optional[str] = self.problem.get("code")


class Refused(GatewayError):
    """An operation was refused, such as the insert of a document that exists."""


class Conflict(GatewayError):
    """Other transactions changed the documents in each attempt."""


class Unavailable(GatewayError):
    """The gateway did not answer, or had no capacity, until the deadline."""


class UnknownOutcome(GatewayError):
    """The transaction is committed or not, as a whole.

    `Client.repeat` sends the commit again under its key, and `Client.outcome` asks for the outcome of `tid`.
    """

    def __init__(self, path: str, body: bytes, key: Optional[str], problem: Document) -> None:
        super().__init__("the outcome of the transaction is unknown", 0, problem)
        self.path, self.body, self.key = path, body, key
        self.tid: Optional[str] = problem.get("tid")


class _Read(NamedTuple):
    moment: int
    token: str
    content: str

    @classmethod
    def of(cls, moment: int, document: Document) -> _Read:
        return cls(moment, document["token"], json.dumps(document["document"]))


class _NotSent(Exception):
    """No connection, so the gateway did not receive the request."""


def _target(target: Target) -> Document:
    collection, id, routing = target
    return {"collection": collection, "id": id, **({} if routing is None else {"routing": routing})}


def _address(target: Document) -> Target:
    return target["collection"], target["id"], target.get("routing")


class Transaction:
    """The handle of a running closure. Operations are carried out at the commit, in their order."""

    def __init__(self, client: Client, known: Dict[Target, _Read], moments: itertools.count[int], deadline: float,
                 for_update: bool):
        self._client, self._known, self._moments, self._deadline = client, known, moments, deadline
        self._for_update, self._is_undecided = for_update, False
        self._reservations: List[str] = []
        self._used: Dict[Target, None] = {}
        self._written: Dict[Target, Any] = {}
        self._operations: List[Document] = []
        # Names the commit for `txn show` and `Client.outcome`. `None` until then, and for a repeated answer.
        self.tid: Optional[str] = None

    def get(self, collection: str, id: str, *, routing: Optional[str] = None) -> Optional[Document]:
        """Returns a document, or `None` if the document is missing."""
        return self.get_all((collection, id, routing))[0]

    def get_all(self, *targets: Tuple[str, str] | Target) -> List[Optional[Document]]:
        """Returns documents `(collection, id)` or `(collection, id, routing)`, in one request."""
        wanted: List[Target] = [(*target, None)[:3] for target in targets]
        unread = [target for target in dict.fromkeys(wanted)
                  if target not in self._known and target not in self._written]
        if unread:
            self._read(unread)
        return [self._content(target) for target in wanted]

    def _read(self, targets: List[Target]) -> None:
        body: Document = {"targets": [_target(target) for target in targets]}
        if self._for_update:
            body["for_update"] = True
        answer = self._client._call("POST", "/_txn/read", body, None, self._deadline)
        self._reservations += [answer["reservation"]] if "reservation" in answer else []
        self._is_undecided |= bool(answer.get("undecided"))
        moment = next(self._moments)
        for target, document in zip(targets, answer["documents"]):
            self._known[target] = _Read.of(moment, document)

    def _content(self, target: Target) -> Optional[Document]:
        if target in self._written:
            if self._written[target] is COMPUTED:
                raise ValueError(f"the gateway computes {target[0]}/{target[1]} at the commit: read it first")
            return json.loads(self._written[target])  # type: ignore[no-any-return]
        self._used[target] = None
        return json.loads(self._known[target].content)  # type: ignore[no-any-return]

    def put(self, collection: str, id: str, document: Document, *, routing: Optional[str] = None) -> None:
        """Writes a document, whether or not it exists."""
        self._operate("put", (collection, id, routing), document, document=document)

    def insert(self, collection: str, id: str, document: Document, *, routing: Optional[str] = None) -> None:
        """Writes a document. The transaction is refused if the document exists."""
        self._operate("insert", (collection, id, routing), document, document=document)

    def merge(self, collection: str, id: str, patch: Document, *, routing: Optional[str] = None) -> None:
        """Applies a JSON merge patch."""
        self._operate("merge", (collection, id, routing), COMPUTED, patch=patch)

    def patch(self, collection: str, id: str, patch: List[Document], *, routing: Optional[str] = None) -> None:
        """Applies a JSON patch."""
        self._operate("patch", (collection, id, routing), COMPUTED, patch=patch)

    def delete(self, collection: str, id: str, *, routing: Optional[str] = None) -> None:
        """Deletes a document, if it exists."""
        self._operate("delete", (collection, id, routing), None)

    def add(self, collection: str, id: str, path: str, amount: float, *, min: Optional[float] = None,
            max: Optional[float] = None, routing: Optional[str] = None) -> None:
        """Adds to the number at a JSON pointer. A sum outside of the bounds is refused."""
        self._operate("add", (collection, id, routing), COMPUTED, path=path, amount=amount, min=min, max=max)

    def _operate(self, name: str, target: Target, content: Any, **fields: Any) -> None:
        operation = {name: {"target": _target(target), **fields} if fields else _target(target)}
        # The closure may change its objects after the call.
        self._operations.append(json.loads(json.dumps(operation, allow_nan=False)))
        self._written[target] = COMPUTED if content is COMPUTED else json.dumps(content)

    def _needs_no_commit(self) -> bool:
        if self._used and (self._is_undecided or self._reservations):
            return False
        return len({self._known[target].moment for target in self._used}) <= 1

    def _commit(self, operations: List[Document], wait_for: Optional[str]) -> bool:
        reads = [{"target": _target(target), "token": self._known[target].token} for target in self._used]
        path = "/_txn/commit" + (f"?wait_for={wait_for}" if wait_for else "")
        key = uuid.uuid4().hex if operations else None
        body: Document = {"reads": reads, "operations": operations}
        if self._reservations:
            body["reservations"] = self._reservations
        answer = self._client._call("POST", path, body, key, self._deadline)
        if "changed" not in answer:
            self.tid = answer.get("tid")
            return True
        if not answer["changed"]:
            # A conflict without contents does not say which reads are stale.
            self._known.clear()
            return False
        # The gateway compared all reads at one moment.
        moment = next(self._moments)
        for target in self._used:
            self._known[target] = self._known[target]._replace(moment=moment)
        for document in answer["changed"]:
            self._known[_address(document["target"])] = _Read.of(moment, document)
        return False


class Client:
    """A client of one gateway, for any number of threads. `timeout` bounds a whole transaction, in seconds."""

    def __init__(self, url: str = "http://127.0.0.1:9280", *, token: Optional[str] = None, attempts: int = 30,
                 timeout: float = 30.0, context: Optional[ssl.SSLContext] = None) -> None:
        self._url, self._context = urlsplit(url), context
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ValueError(f"{url!r} is no address such as http://127.0.0.1:9280")
        self._idle: List[http.client.HTTPConnection] = []
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            if re.fullmatch("[!-~]+", token) is None:
                raise ValueError("the token is empty or has a character that no token has, such as a line break")
            self._headers["Authorization"] = f"Bearer {token}"
        self.attempts, self.timeout = attempts, timeout

    def transact(self, closure: Callable[[Transaction], T], *, timeout: Optional[float] = None,
                 wait_for: Optional[str] = None, for_update: bool = False) -> T:
        """Calls `closure` and commits its operations if all documents that it has read are unchanged.

        Otherwise the closure runs again, on the new contents. `wait_for` is `apply` or `refresh`, if plain reads or
        searches of the servers must see the commit. `for_update` reserves the documents for a moment, so that closures
        on a hot document follow each other. The third attempt and all later ones do so in any case.
        """
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        known: Dict[Target, _Read] = {}
        moments = itertools.count()
        used: List[Target] = []
        for attempt in range(self.attempts):
            reserves = for_update or attempt >= RESERVES_FROM
            transaction = Transaction(self, known, moments, deadline, reserves)
            if reserves:
                known.clear()
                if used:
                    # One request reserves all documents in one order, so that clients do not block each other.
                    transaction._read(used)
            operations = transaction._operations
            failure: Optional[Exception] = None
            try:
                value = closure(transaction)
            except GatewayError:
                raise
            except Exception as error:
                # An error may come from contents of different moments, which the gateway compares.
                failure, operations = error, []
            used = list(transaction._used)
            if (not operations and transaction._needs_no_commit()) or transaction._commit(operations, wait_for):
                if failure is not None:
                    raise failure
                return value
            if not _pause(attempt, 0, deadline):
                break
        raise Conflict("other transactions changed the documents in each attempt")

    def outcome(self, tid: str) -> str:
        """Returns `committed`, `aborted`, `unknown` while the transaction runs, or `forgotten`."""
        answer = self._call("GET", f"/_txn/{quote(tid, safe='')}", None, None, time.monotonic() + self.timeout)
        return str(answer["outcome"])

    def repeat(self, unknown: UnknownOutcome) -> None:
        """Sends a commit again, within 24 hours, and returns if the commit has its effect, once."""
        if unknown.key is None:
            raise ValueError("the commit has no key, so a repetition could have a second effect")
        deadline = time.monotonic() + self.timeout
        if "changed" in self._send("POST", unknown.path, unknown.body, unknown.key, deadline):
            raise Conflict("other transactions changed the documents, and nothing was changed")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the idle connections."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                break

    def _call(self, method: str, path: str, body: Optional[Document], key: Optional[str], deadline: float) -> Document:
        content = b"" if body is None else json.dumps(body, allow_nan=False).encode()
        return self._send(method, path, content, key, deadline)

    def _send(self, method: str, path: str, body: bytes, key: Optional[str], deadline: float) -> Document:
        """Sends a request until there is an answer other than a refusal that passes."""
        doubt: Optional[Document] = None
        for repetition in itertools.count():
            status, after, lost = 0, 0.0, False
            answer: Document = {}
            try:
                status, after, answer = self._exchange(method, path, body, key, deadline)
                lost = status in (502, 504) or (status == 503 and answer.get("code") not in ("unavailable", "closing"))
            except _NotSent as error:
                answer = {"detail": str(error)}
            except (OSError, http.client.HTTPException, ValueError) as error:
                answer, lost = {"detail": f"the answer was lost: {error}"}, True
            code = answer.get("code")
            if (lost or code == "unknown") and key is not None:
                doubt = answer if answer.get("tid") else doubt or answer
            if status == 200 or code in STORED:
                return _checked(status, answer)
            passes = lost or status in (0, 429, 503) or code == "conflict"
            if passes and _pause(repetition, after, deadline):
                continue
            if doubt is not None:
                raise UnknownOutcome(path, body, key, doubt)
            detail = str(answer.get("detail") or f"the gateway answered {status}")
            kind = Conflict if code == "conflict" else Unavailable if passes else GatewayError
            raise kind(detail, status, answer)
        raise AssertionError("the loop ends by an answer or an error")

    def _exchange(self, method: str, path: str, body: bytes, key: Optional[str], deadline: float
                  ) -> Tuple[int, float, Document]:
        headers = self._headers if key is None else {**self._headers, "Idempotency-Key": key}
        timeout = max(deadline - time.monotonic(), 0.001)
        connection = self._connection(timeout)
        try:
            try:
                connection.request(method, self._url.path.rstrip("/") + path, body or None, headers)
            except (BrokenPipeError, ConnectionResetError):
                # The gateway answers a body that is too large, and then reads no more of the body.
                pass
            response = connection.getresponse()
            text = response.read()
        except BaseException:
            connection.close()
            # The gateway may have ended, and the idle connections with it.
            self.close()
            raise
        self._idle.append(connection)
        after, tid = response.getheader("Retry-After") or "", response.getheader("X-Transaction-Id")
        try:
            answer = json.loads(text)
        except ValueError:
            if response.status == 200:
                raise
            answer = {}
        answer = answer if isinstance(answer, dict) else {}
        if tid and response.status == 200:
            answer.setdefault("tid", tid)
        return response.status, float(after) if after.isdigit() else 0.0, answer

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        """Returns an idle connection, or connects."""
        try:
            connection = self._idle.pop()
        except IndexError:
            host, port = self._url.hostname or "", self._url.port
            if self._url.scheme == "https":
                context = self._context or ssl.create_default_context()
                connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
            else:
                connection = http.client.HTTPConnection(host, port, timeout=timeout)
        connection.timeout = timeout
        if connection.sock is None:
            try:
                connection.connect()
            except OSError as error:
                connection.close()
                raise _NotSent(f"no connection to the gateway: {error}") from error
        connection.sock.settimeout(timeout)
        return connection


def _checked(status: int, answer: Document) -> Document:
    if answer.get("code") in ("exists", "refused"):
        raise Refused(str(answer.get("detail")), status, answer)
    return answer


def _pause(repetition: int, after: float, deadline: float) -> bool:
    """Sleeps with full jitter, after the pause that the gateway asks for. Returns `False` at the deadline."""
    pause = after + random.uniform(0, min(LONGEST_PAUSE, SHORTEST_PAUSE * 2 ** min(repetition, 20)))
    if time.monotonic() + pause >= deadline:
        return False
    time.sleep(pause)
    return True
