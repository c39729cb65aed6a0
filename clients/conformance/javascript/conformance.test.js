/** Official clients against the gateway and against the servers, with equal answers. */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { Client as OpenSearch } from "@opensearch-project/opensearch";
import { Client as Elasticsearch8 } from "elasticsearch-8";
import { Client as Elasticsearch9 } from "elasticsearch-9";
import { Gateway } from "./gateway.js";

/** Fields whose values belong to one store. */
const NUMBERS = new Set(["_version", "_seq_no", "_primary_term", "took"]);
/** Fields that only one side has. The README has the reasons. */
const DROPPED = new Set(["_shards", "forced_refresh", "status"]);
/** Steps in which atomicity changes the answer, or which the gateway refuses, with the status of the gateway. */
const DIFFERENT = {
  "bulk with a conflict": 409,
  "bulk with an update of a missing document": 409,
  "helper with a conflict": 409,
  "half of a refused helper": 200,
  "script": 400,
  "external version": 400,
};

function normalised(value, index) {
  if (Array.isArray(value)) return value.map((item) => normalised(item, index));
  if (value === index) return "INDEX";
  if (value === null || typeof value !== "object") return value;
  if (value.error && typeof value.error === "object" && !value._id) {
    // A refused request has one type for the gateway, and several for the servers.
    const error = value.status === 400 ? "INVALID" : value.error.type;
    return value.items ? { error, items: normalised(value.items, index) } : { error };
  }
  const fields = Object.entries(value).filter(([name]) => !DROPPED.has(name) || (name === "status" && "_id" in value));
  return Object.fromEntries(fields.map(([name, field]) => {
    if (NUMBERS.has(name)) return [name, "NUMBER"];
    if (name === "_id" && field.length >= 20 && value.result === "created") return [name, "GENERATED"];
    if (name === "error" && field && typeof field === "object") return [name, field.type];
    return [name, normalised(field, index)];
  }));
}

/** Runs all steps with one client, and returns the answers. */
async function record(kind, client, index) {
  const answers = {};
  const isElastic = kind.startsWith("elasticsearch");
  // The clients of Elasticsearch spread a body over the parameters.
  const call = (method, target, body = {}) => {
    const sent = isElastic ? body : Object.keys(body).length > 0 ? { body } : {};
    return client[method]({ index, ...target, ...sent }, isElastic ? { meta: true } : {});
  };
  const document = (body) => (isElastic ? { document: body } : { body });
  const put = (method, target, body) =>
    client[method]({ index, ...target, ...document(body) }, isElastic ? { meta: true } : {});
  const bulk = (lines, target = {}) =>
    client.bulk({ ...target, [isElastic ? "operations" : "body"]: lines }, isElastic ? { meta: true } : {});
  const step = async (name, send) => {
    assert(!(name in answers), name);
    try {
      const answer = await send();
      const [status, body] = answer.statusCode ? [answer.statusCode, answer.body] : [200, answer];
      answers[name] = { status, body: normalised(body, index) };
      return body;
    } catch (error) {
      if (!error.meta?.statusCode) throw error;
      answers[name] = { status: error.meta.statusCode, body: normalised(error.meta.body, index) };
      return undefined;
    }
  };

  await step("index", () => put("index", { id: "1" }, { a: 1 }));
  await step("index again", () => put("index", { id: "1" }, { a: 2, b: [1, null], c: { d: 1.5 } }));
  await step("index without id", () => put("index", {}, { a: 1 }));
  await step("index and refresh", () => put("index", { id: "2", refresh: "wait_for" }, { a: 2 }));
  await step("create", () => put("create", { id: "3" }, { a: 3 }));
  await step("create an existing document", () => put("create", { id: "3" }, { a: 4 }));
  await step("get", () => call("get", { id: "1" }));
  await step("get a missing document", () => call("get", { id: "none" }));
  await step("get of a missing index", () => call("get", { index: `${index}-none`, id: "1" }));
  await step("exists", () => call("exists", { id: "1" }));
  await step("exists not", () => call("exists", { id: "none" }));
  await step("source", () => call("getSource", { id: "1" }));
  await step("id with special letters", () => put("index", { id: "a/b c?ü+%" }, { a: 1 }));
  await step("get with special letters", () => call("get", { id: "a/b c?ü+%" }));
  await step("delete", () => call("delete", { id: "2" }));
  await step("delete a missing document", () => call("delete", { id: "2" }));

  const { _seq_no, _primary_term } = await step("read for a condition", () => call("get", { id: "1" }));
  const fits = { if_seq_no: _seq_no, if_primary_term: _primary_term };
  await step("conditional index", () => put("index", { id: "1", ...fits }, { a: 3 }));
  await step("index with an old condition", () => put("index", { id: "1", ...fits }, { a: 4 }));
  await step("delete with an old condition", () => call("delete", { id: "1", ...fits }));
  await step("condition on a missing document", () => put("index", { id: "none", ...fits }, { a: 4 }));

  await step("update", () => call("update", { id: "1" }, { doc: { b: 1, o: { x: 1 } } }));
  await step("updated document", () => call("get", { id: "1" }));
  await step("update without effect", () => call("update", { id: "1" }, { doc: { b: 1 } }));
  await step("update a missing document", () => call("update", { id: "none" }, { doc: { b: 1 } }));
  await step("doc_as_upsert", () => call("update", { id: "v" }, { doc: { b: 1 }, doc_as_upsert: true }));
  await step("upsert", () => call("update", { id: "w" }, { doc: { b: 1 }, upsert: { b: 2 } }));
  await step("upsert again", () => call("update", { id: "w" }, { doc: { b: 1 }, upsert: { b: 2 } }));
  await step("script", () => call("update", { id: "w" }, { script: { source: "ctx._source.b += 1" } }));
  await step("external version", () => put("index", { id: "e", version: 7, version_type: "external" }, { a: 1 }));
  await step("half a condition", () => put("index", { id: "1", if_seq_no: 1 }, { a: 1 }));

  const at = (verb, _id) => ({ [verb]: { _index: index, _id } });
  await step("bulk", () => bulk([
    at("index", "b1"), { a: 1 }, at("create", "b2"), { a: 2 }, at("update", "b1"), { doc: { b: 1 } },
    at("update", "b3"), { doc: { a: 3 }, doc_as_upsert: true }, at("delete", "b2"), at("delete", "none"),
  ]));
  await step("bulk with the index in the path", () => bulk([{ index: { _id: "b4" } }, { a: 4 }], { index, refresh: true }));
  await step("bulk with a conflict", () => bulk([at("index", "b5"), { a: 5 }, at("create", "b1"), { a: 9 }]));
  await step("bulk with an update of a missing document", () =>
    bulk([at("index", "b5"), { a: 5 }, at("update", "none"), { doc: { a: 9 } }]));
  await step("bulk with an unknown action", () => bulk([at("upsert", "b6"), { a: 1 }]));

  const helper = async (ids, verb, onDrop = () => {}) => {
    const { total, successful, failed } = await client.helpers.bulk({
      datasource: ids.map((id) => ({ id })),
      onDocument: ({ id }) => ({ [id === "b1" ? "create" : verb]: { _index: index, _id: id } }),
      onDrop, wait: 1, retries: 1,
    });
    return { total, successful, failed };
  };
  const many = Array.from({ length: 1_200 }, (_, number) => `h${number}`);
  await step("helper", () => helper(many, "index"));
  await step("document of a helper", () => call("get", { id: "h1199" }));
  await step("helper with deletions", () => helper(["h1", "h2"], "delete"));
  await step("helper with a conflict", () => helper(["half", "b1"], "index"));
  await step("half of a refused helper", () => call("exists", { id: "half" }));
  return answers;
}

const clients = {
  elasticsearch: (node) => new Elasticsearch8({ node, maxRetries: 0 }),
  elasticsearch9: (node) => new Elasticsearch9({ node, maxRetries: 0 }),
  opensearch: (node) => new OpenSearch({ node, maxRetries: 0 }),
};

for (const [kind, connect] of Object.entries(clients)) {
  test(`client of ${kind} gets equal answers`, async (context) => {
    const gateway = await Gateway.start();
    context.after(() => gateway.stop());
    const index = `conformance-${randomUUID()}`;
    const client = connect(gateway.url);
    const answers = await record(kind, client, index);
    await client.close();
    for (const [name, status] of Object.entries(DIFFERENT)) {
      if (name !== "half of a refused helper") assert.equal(answers[name].status, status, name);
    }
    assert.equal(answers["create an existing document"].status, 409);
    assert.equal(answers["get a missing document"].status, 404);
    assert.equal(answers["helper"].body.successful, 1_200);
    assert.notDeepEqual(answers["half of a refused helper"], answers["exists"]);

    const url = process.env[`TXN_${kind.toUpperCase()}_URL`];
    if (!url) return;
    const direct = connect(url);
    context.after(async () => {
      await direct.indices.delete({ index });
      await direct.close();
    });
    const expected = await record(kind, direct, index);
    for (const name of Object.keys(DIFFERENT)) {
      // A server may have no language for scripts.
      if (name !== "script") assert.notDeepEqual(answers[name], expected[name], name);
      delete answers[name];
      delete expected[name];
    }
    assert.deepEqual(answers, expected);
  });
}
