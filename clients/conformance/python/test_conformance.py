"""Official clients against the gateway and against the servers, with equal answers."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
import urllib.request
import uuid
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import elasticsearch
import elasticsearch.helpers
import opensearchpy
import opensearchpy.helpers

# The process of the gateway is that of the tests of the thin client.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from tests.gateway import Gateway  # noqa: E402

# Fields whose values belong to one store.
NUMBERS = ("_version", "_seq_no", "_primary_term", "took")
# Steps in which atomicity changes the answer, or which the gateway refuses. README.md has the reasons.
DIFFERENT = {
    "bulk with a conflict": ("error", 409),
    "bulk with an update of a missing document": ("error", 409),
    "helper with a conflict": ("error", 409),
    "script": ("error", 400),
    "external version": ("error", 400),
}


def normalised(value: Any, index: str) -> Any:
    if isinstance(value, list):
        return [normalised(item, index) for item in value]
    if not isinstance(value, dict):
        return "INDEX" if value == index else value
    fields = {name: field for name, field in value.items() if name not in ("_shards", "status") or "_id" in value}
    if isinstance(value.get("error"), dict):
        # A refused request has one type for the gateway, and several for the servers.
        fields["error"] = "INVALID" if value.get("status") == 400 else value["error"].get("type")
        for name in ("code", "detail", "title", "type", "root_cause"):
            fields.pop(name, None)
    for name in ("_shards", "forced_refresh"):
        fields.pop(name, None)
    if value.get("result") == "created" and len(str(value.get("_id"))) >= 20:
        fields["_id"] = "GENERATED"
    return {name: "NUMBER" if name in NUMBERS else normalised(field, index) for name, field in fields.items()}


class Recorder:
    """Runs the steps with one client, and keeps their answers."""

    def __init__(self, client: Any, helpers: Any, errors: Tuple[type, ...], index: str) -> None:
        self.client, self.helpers, self.errors, self.index = client, helpers, errors, index
        self.answers: Dict[str, Any] = {}

    def step(self, name: str, call: Callable[[], Any]) -> Any:
        answer: Any = None
        try:
            answer = call()
            answer = getattr(answer, "body", answer)
            kept: Any = ("answer", 200, normalised(answer, self.index))
        except self.errors as error:
            status = getattr(error, "status_code", None)
            body = getattr(error, "body", None) or getattr(error, "info", None)
            kept = ("error", status, normalised(body, self.index) if isinstance(body, dict) else None)
        assert name not in self.answers, name
        self.answers[name] = kept
        return answer

    def run(self) -> None:
        self.documents()
        self.conditions()
        self.updates()
        self.refusals()
        self.bulks()
        self.bulk_helpers()

    def documents(self) -> None:
        client, index = self.client, self.index
        self.step("index", lambda: client.index(index=index, id="1", body={"a": 1}))
        self.step("index again", lambda: client.index(index=index, id="1", body={"a": 1, "b": [1, None, 2], "c": {"d": 2.50}}))
        self.step("index without id", lambda: client.index(index=index, body={"a": 1}))
        self.step("index and refresh", lambda: client.index(index=index, id="2", body={"a": 2}, refresh="wait_for"))
        self.step("create", lambda: client.create(index=index, id="3", body={"a": 3}))
        self.step("create an existing document", lambda: client.create(index=index, id="3", body={"a": 4}))
        self.step("op_type", lambda: client.index(index=index, id="3", body={"a": 4}, op_type="create"))
        self.step("get", lambda: client.get(index=index, id="1"))
        self.step("get without source", lambda: client.get(index=index, id="1", _source=False))
        self.step("get a missing document", lambda: client.get(index=index, id="none"))
        self.step("get of a missing index", lambda: client.get(index=f"{index}-none", id="1"))
        self.step("exists", lambda: bool(client.exists(index=index, id="1")))
        self.step("exists not", lambda: bool(client.exists(index=index, id="none")))
        self.step("source", lambda: client.get_source(index=index, id="1"))
        self.step("routing", lambda: client.index(index=index, id="routed", routing="r", body={"a": 1}))
        self.step("get with routing", lambda: client.get(index=index, id="routed", routing="r"))
        self.step("id with special letters", lambda: client.index(index=index, id="a/b c?ü+%", body={"a": 1}))
        self.step("get with special letters", lambda: client.get(index=index, id="a/b c?ü+%"))
        self.step("delete", lambda: client.delete(index=index, id="2"))
        self.step("delete a missing document", lambda: client.delete(index=index, id="2"))
        self.step("existing index", lambda: bool(client.indices.exists(index=index)))
        self.step("missing index", lambda: bool(client.indices.exists(index=f"{index}-none")))

    def conditions(self) -> None:
        client, index = self.client, self.index
        client.index(index=index, id="c", body={"a": 1})
        read = client.get(index=index, id="c")
        fits = {"if_seq_no": read["_seq_no"], "if_primary_term": read["_primary_term"]}
        self.step("conditional index", lambda: client.index(index=index, id="c", body={"a": 2}, **fits))
        self.step("index with an old condition", lambda: client.index(index=index, id="c", body={"a": 3}, **fits))
        self.step("update with an old condition", lambda: client.update(index=index, id="c", body={"doc": {"a": 3}}, **fits))
        self.step("delete with an old condition", lambda: client.delete(index=index, id="c", **fits))
        read = client.get(index=index, id="c")
        fits = {"if_seq_no": read["_seq_no"], "if_primary_term": read["_primary_term"]}
        self.step("conditional update", lambda: client.update(index=index, id="c", body={"doc": {"a": 3}}, **fits))
        read = client.get(index=index, id="c")
        fits = {"if_seq_no": read["_seq_no"], "if_primary_term": read["_primary_term"]}
        self.step("conditional delete", lambda: client.delete(index=index, id="c", **fits))
        self.step("condition on a missing document", lambda: client.index(index=index, id="none", body={}, **fits))

    def updates(self) -> None:
        client, index = self.client, self.index
        update: Callable[..., Any] = lambda id, **body: client.update(index=index, id=id, body=body)  # noqa: E731
        client.index(index=index, id="u", body={"a": 1, "o": {"x": 1, "y": [1]}})
        self.step("update", lambda: update("u", doc={"o": {"y": [2]}, "n": None}))
        self.step("updated document", lambda: client.get(index=index, id="u"))
        self.step("update without effect", lambda: update("u", doc={"a": 1}))
        self.step("update without detection", lambda: update("u", doc={"a": 1}, detect_noop=False))
        self.step("update a missing document", lambda: update("none", doc={"a": 1}))
        self.step("doc_as_upsert", lambda: update("v", doc={"a": 1}, doc_as_upsert=True))
        self.step("doc_as_upsert again", lambda: update("v", doc={"a": 2}, doc_as_upsert=True))
        self.step("upsert", lambda: update("w", doc={"a": 1}, upsert={"b": 1}))
        self.step("upserted document", lambda: client.get(index=index, id="w"))
        self.step("upsert again", lambda: update("w", doc={"a": 1}, upsert={"b": 1}))

    def refusals(self) -> None:
        client, index = self.client, self.index
        script = {"source": "ctx._source.a += 1"}
        self.step("script", lambda: client.update(index=index, id="u", body={"script": script}))
        self.step("external version", lambda: client.index(
            index=index, id="e", body={"a": 1}, version=7, version_type="external"))
        self.step("number of copies", lambda: client.index(index=index, id="n", body={"a": 1}, wait_for_active_shards=1))
        self.step("empty update", lambda: client.update(index=index, id="u", body={}))
        self.step("unknown field of an update", lambda: client.update(index=index, id="u", body={"dok": {}}))
        self.step("half a condition", lambda: client.index(index=index, id="u", body={"a": 1}, if_seq_no=1))
        self.step("name of an index", lambda: client.index(index="Upper", id="u", body={"a": 1}))

    def bulks(self) -> None:
        client, index = self.client, self.index
        bulk: Callable[..., Any] = lambda *lines: client.bulk(body=list(lines))  # noqa: E731
        at: Callable[[str, str], Any] = lambda verb, id: {verb: {"_index": index, "_id": id}}  # noqa: E731
        self.step("bulk", lambda: bulk(
            at("index", "b1"), {"a": 1}, at("create", "b2"), {"a": 2}, at("update", "b1"), {"doc": {"b": 1}},
            at("update", "b3"), {"doc": {"a": 3}, "doc_as_upsert": True}, at("delete", "b2"), at("delete", "none")))
        self.step("bulk with the index in the path", lambda: client.bulk(
            index=index, body=[{"index": {"_id": "b4"}}, {"a": 4}], refresh=True))
        self.step("bulk without ids", lambda: client.bulk(index=index, body=[{"index": {}}, {"a": 5}]))
        self.step("bulk with a conflict", lambda: bulk(at("index", "b5"), {"a": 5}, at("create", "b1"), {"a": 9}))
        self.step("bulk with an update of a missing document", lambda: bulk(
            at("index", "b5"), {"a": 5}, at("update", "none"), {"doc": {"a": 9}}))
        self.step("empty bulk", lambda: client.bulk(body="\n"))
        self.step("bulk with an unknown action", lambda: bulk({"upsert": {"_index": index, "_id": "b6"}}, {"a": 1}))
        self.step("bulk without a document", lambda: bulk(at("index", "b6")))

    def bulk_helpers(self) -> None:
        client, index = self.client, self.index
        actions: List[Any] = [{"_index": index, "_id": f"h{number}", "a": number} for number in range(1_200)]
        self.step("helper", lambda: self.helpers.bulk(client, actions, refresh=True))
        self.step("helper with generated ids", lambda: self.helpers.bulk(client, [{"_index": index, "a": 1}] * 3))
        mixed = [{"_op_type": "delete", "_index": index, "_id": "h0"},
                 {"_op_type": "update", "_index": index, "_id": "h1", "doc": {"b": 1}},
                 {"_op_type": "create", "_index": index, "_id": "h0", "a": 1}]
        self.step("helper with all verbs", lambda: self.helpers.bulk(client, mixed))
        refused = [{"_index": index, "_id": "half", "a": 1}, {"_op_type": "create", "_index": index, "_id": "h5"}]
        self.step("helper with a conflict", lambda: self.helpers.bulk(client, refused, raise_on_error=False))
        self.step("half of a refused helper", lambda: bool(client.exists(index=index, id="half")))
        self.step("document of a helper", lambda: client.get(index=index, id="h1"))


class Compared(Gateway):
    """A gateway for official clients, with an embedded file or in front of a server."""

    def __init__(self, server: Optional[str] = None) -> None:
        self.server = server
        self.domain = f"conformance{uuid.uuid4().hex[:12]}"
        options = ["--elastic-product"]
        if server is not None:
            store = ["--store", server, "--domain", self.domain]
            program = os.path.abspath(os.environ["TXN_GATEWAY_PROGRAM"])
            subprocess.run([program, "init", *store], check=True, stdout=subprocess.DEVNULL)
            options += [*store, "--create-collections"]
        super().__init__(*options)

    def stop(self) -> None:
        super().stop()
        if self.server is not None:
            # The indices of the domain have its name.
            with urllib.request.urlopen(f"{self.server}/_cat/indices?h=index&expand_wildcards=all") as answer:
                names = answer.read().decode().split()
            for name in names:
                if self.domain in name:
                    delete(self.server, name)


def delete(server: str, index: str) -> None:
    urllib.request.urlopen(urllib.request.Request(f"{server}/{index}", method="DELETE")).close()


class ConformanceTest(unittest.TestCase):
    maxDiff = None

    def gateway(self, server: Optional[str] = None) -> str:
        gateway = Compared(server)
        self.addCleanup(gateway.stop)
        return gateway.url

    def recorded(self, kind: str, url: str, server: Optional[str] = None) -> Dict[str, Any]:
        index = f"conformance-{uuid.uuid4().hex[:12]}"
        if kind == "opensearch":
            client: Any = opensearchpy.OpenSearch(url)
            errors: Tuple[type, ...] = (opensearchpy.exceptions.TransportError,)
            helpers: Any = opensearchpy.helpers
        else:
            client = elasticsearch.Elasticsearch(url)
            errors, helpers = (elasticsearch.ApiError,), elasticsearch.helpers
        self.addCleanup(client.close)
        recorder = Recorder(client, helpers, errors, index)
        try:
            recorder.run()
        finally:
            if server is not None:
                delete(server, index)
        return recorder.answers

    def check_gateway(self, answers: Dict[str, Any]) -> None:
        expected = {
            "index": ("answer", 200), "create an existing document": ("error", 409),
            "get a missing document": ("error", 404), "index with an old condition": ("error", 409),
            "update a missing document": ("error", 404), "empty update": ("error", 400), **DIFFERENT,
        }
        for name, (kind, status) in expected.items():
            self.assertEqual(answers[name][:2], (kind, status), name)
        self.assertEqual(answers["half of a refused helper"][2], False)
        self.assertEqual(tuple(answers["helper"][2]), (1_200, []))

    def compare(self, answers: Dict[str, Any], servers: Dict[str, Any]) -> None:
        self.check_gateway(answers)
        for name in [*DIFFERENT, "half of a refused helper"]:
            # A server may have no language for scripts.
            if name != "script":
                self.assertNotEqual(answers[name], servers[name], name)
        same = [name for name in servers if name not in DIFFERENT and name != "half of a refused helper"]
        different = {name: (answers[name], servers[name]) for name in same if answers[name] != servers[name]}
        self.assertEqual(different, {})

    def check(self, kind: str) -> None:
        answers = self.recorded(kind, self.gateway())
        self.check_gateway(answers)
        major = "9" if kind == "elasticsearch" and elasticsearch.__version__[0] == 9 else ""
        server = os.environ.get(f"TXN_{kind.upper()}{major}_URL")
        if server is None:
            return
        servers = self.recorded(kind, server, server)
        with self.subTest("embedded file"):
            self.compare(answers, servers)
        with self.subTest("in front of the server"):
            self.compare(self.recorded(kind, self.gateway(server), server), servers)

    def test_elasticsearch_client(self) -> None:
        self.check("elasticsearch")

    def test_opensearch_client(self) -> None:
        self.check("opensearch")


if __name__ == "__main__":
    unittest.main()
