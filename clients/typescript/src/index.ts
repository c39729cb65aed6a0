/** Transactions over HTTP, through a gateway (`txn serve`). */

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export interface Target { collection: string; id: string; routing?: string }
export type Outcome = "committed" | "aborted" | "unknown" | "forgotten";
export interface Bounds { min?: number; max?: number }
export interface Problem { code?: string; detail?: string; tid?: string; [name: string]: unknown }

export interface ClientOptions {
  /** A bearer token for each request. */
  token?: string;
  /** The maximum number of runs of a closure, 30 unless set. */
  attempts?: number;
  /** The bound of a whole transaction in milliseconds, 30,000 unless set. */
  timeout?: number;
}

export interface TransactOptions {
  timeout?: number;
  /** `apply` or `refresh`, if plain reads or searches of the servers must see the commit. */
  waitFor?: "commit" | "apply" | "refresh";
  /**
   * Reserves the documents for a moment, so that closures on a hot document follow each other. The third attempt and
   * all later ones do so in any case.
   */
  forUpdate?: boolean;
}

interface Read { moment: number; token: string; content: string }
interface Found { target: Target; token: string; document: object | null }
interface Answer extends Problem { documents?: Found[]; changed?: Found[]; outcome?: Outcome; reservation?: string; undecided?: boolean }
interface Commit { path: string; body: string; key: string }

const SHORTEST_PAUSE = 10;
const LONGEST_PAUSE = 2_000;
/** The first attempt that reserves its documents, unless the caller asks for all. */
const RESERVES_FROM = 2;
/** Codes of answers that the gateway stores under an idempotency key. */
const STORED: unknown[] = ["changed", "exists", "refused"];
/** Codes of failed connections, over which no request was sent. */
const NOT_SENT: unknown[] = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"];
/** The largest body that a gateway accepts. `fetch` loses the answer to a larger body. */
const LARGEST_BODY = 16 << 20;
const COMPUTED = Symbol("computed at the commit");

/** A failed request. Nothing was changed, except after `UnknownOutcome`. */
export class GatewayError extends Error {
  readonly code: string | undefined;
  constructor(detail: string, readonly status = 0, readonly problem: Problem = {}) {
    super(detail);
    this.name = new.target.name;
    this.code = problem.code;
  }
}

/** An operation was refused, such as the insert of a document that exists. */
export class Refused extends GatewayError {}

/** Other transactions changed the documents in each attempt. */
export class Conflict extends GatewayError {}

/** The gateway did not answer, or had no capacity, until the deadline. */
export class Unavailable extends GatewayError {}

/**
 * The transaction is committed or not, as a whole. `Client.repeat` sends the commit again under its key, and
 * `Client.outcome` asks for the outcome of `tid`.
 */
export class UnknownOutcome extends GatewayError {
  readonly tid: string | undefined;
  constructor(readonly commit: Commit, problem: Problem) {
    super("the outcome of the transaction is unknown", 0, problem);
    this.tid = problem.tid;
  }
}

const name = (target: Target): string => JSON.stringify([target.collection, target.id, target.routing]);

/** The handle of a running closure. Operations are carried out at the commit, in their order. */
export class Transaction {
  readonly #client: Client;
  readonly #known: Map<string, Read>;
  readonly #deadline: number;
  readonly #forUpdate: boolean;
  readonly #reservations: string[] = [];
  #isUndecided = false;
  readonly #used = new Map<string, Target>();
  readonly #written = new Map<string, string | typeof COMPUTED>();
  #operations: object[] = [];
  #tid: string | undefined;

  /** @internal */
  constructor(client: Client, known: Map<string, Read>, deadline: number, forUpdate: boolean) {
    [this.#client, this.#known, this.#deadline, this.#forUpdate] = [client, known, deadline, forUpdate];
  }

  /** @internal The documents that the closure has read. */
  get used(): Target[] {
    return [...this.#used.values()];
  }

  /** Names the commit for `txn show` and `Client.outcome`. `undefined` until then, and for a repeated answer. */
  get tid(): string | undefined {
    return this.#tid;
  }

  /** Returns a document, or `null` if the document is missing. */
  async get<T extends object = Record<string, any>>(collection: string, id: string, routing?: string): Promise<T | null> {
    const [document] = await this.getAll<T>({ collection, id, routing });
    return document ?? null;
  }

  /** Returns documents, in one request. */
  async getAll<T extends object = Record<string, any>>(...targets: Target[]): Promise<(T | null)[]> {
    const unread = new Map(targets.map((target) => [name(target), target]));
    for (const key of [...this.#known.keys(), ...this.#written.keys()]) unread.delete(key);
    if (unread.size > 0) await this.read([...unread.values()]);
    return targets.map((target) => this.#content(target) as T | null);
  }

  /** @internal Reads documents in one request. */
  async read(targets: Target[]): Promise<void> {
    const body = JSON.stringify({ targets, ...(this.#forUpdate ? { for_update: true } : {}) });
    const answer = await this.#client.send("POST", "/_txn/read", body, undefined, this.#deadline);
    if (answer.reservation !== undefined) this.#reservations.push(answer.reservation);
    this.#isUndecided ||= answer.undecided ?? false;
    this.#learn(answer.documents ?? []);
  }

  #content(target: Target): unknown {
    const written = this.#written.get(name(target));
    if (written === COMPUTED) {
      throw new TypeError(`the gateway computes ${target.collection}/${target.id} at the commit: read it first`);
    }
    if (written !== undefined) return JSON.parse(written);
    this.#used.set(name(target), target);
    return JSON.parse(this.#read(target).content);
  }

  #read(target: Target): Read {
    const read = this.#known.get(name(target));
    if (read === undefined) throw new GatewayError(`the answer has no ${target.collection}/${target.id}`);
    return read;
  }

  /** Keeps contents of one moment. */
  #learn(documents: Found[]): void {
    const moment = Math.max(0, ...[...this.#known.values()].map((read) => read.moment)) + 1;
    for (const { target, token, document } of documents) {
      this.#known.set(name(target), { moment, token, content: JSON.stringify(document) });
    }
  }

  /** Writes a document, whether or not it exists. */
  put(collection: string, id: string, document: object, routing?: string): void {
    this.#operate("put", { collection, id, routing }, { document }, JSON.stringify(document));
  }

  /** Writes a document. The transaction is refused if the document exists. */
  insert(collection: string, id: string, document: object, routing?: string): void {
    this.#operate("insert", { collection, id, routing }, { document }, JSON.stringify(document));
  }

  /** Applies a JSON merge patch. */
  merge(collection: string, id: string, patch: object, routing?: string): void {
    this.#operate("merge", { collection, id, routing }, { patch });
  }

  /** Applies a JSON patch. */
  patch(collection: string, id: string, patch: object[], routing?: string): void {
    this.#operate("patch", { collection, id, routing }, { patch });
  }

  /** Deletes a document, if it exists. */
  delete(collection: string, id: string, routing?: string): void {
    this.#operate("delete", { collection, id, routing }, undefined, "null");
  }

  /** Adds to the number at a JSON pointer. A sum outside of the bounds is refused. */
  add(collection: string, id: string, path: string, amount: number, bounds: Bounds = {}, routing?: string): void {
    this.#operate("add", { collection, id, routing }, { path, amount, ...bounds });
  }

  #operate(operation: string, target: Target, fields?: object, content: string | typeof COMPUTED = COMPUTED): void {
    // The closure may change its objects after the call.
    this.#operations.push(structuredClone({ [operation]: fields ? { target, ...fields } : target }));
    this.#written.set(name(target), content);
  }

  /** @internal Commits, and returns `false` if documents have changed. */
  async commit(waitFor?: string, failed = false): Promise<boolean> {
    const operations = failed ? [] : this.#operations;
    const moments = new Set([...this.#used.values()].map((target) => this.#read(target).moment));
    const isKnown = moments.size === 0 || (moments.size === 1 && !this.#isUndecided && this.#reservations.length === 0);
    if (operations.length === 0 && isKnown) return true;
    const reads = [...this.#used.values()].map((target) => ({ target, token: this.#read(target).token }));
    const path = "/_txn/commit" + (waitFor ? `?wait_for=${waitFor}` : "");
    const key = operations.length > 0 ? crypto.randomUUID() : undefined;
    const reservations = this.#reservations.length > 0 ? this.#reservations : undefined;
    const body = JSON.stringify({ reads, operations, reservations });
    const { changed, tid } = await this.#client.send("POST", path, body, key, this.#deadline);
    if (changed === undefined) {
      this.#tid = tid;
      return true;
    }
    if (changed.length === 0) {
      // A conflict without contents does not say which reads are stale.
      this.#known.clear();
      return false;
    }
    // The gateway compared all reads at one moment.
    const compared = reads.map(({ target, token }) => {
      return { target, token, document: JSON.parse(this.#read(target).content) as object | null };
    });
    this.#learn([...compared, ...changed]);
    return false;
  }
}

/** A client of one gateway. */
export class Client {
  readonly #url: string;
  readonly #headers: Record<string, string> = { "Content-Type": "application/json" };
  readonly #attempts: number;
  readonly #timeout: number;

  constructor(url = "http://127.0.0.1:9280", { token, attempts = 30, timeout = 30_000 }: ClientOptions = {}) {
    if (!URL.canParse(url) || !/^https?:/i.test(url)) throw new TypeError(`${url} is no address such as http://127.0.0.1:9280`);
    [this.#url, this.#attempts, this.#timeout] = [url.replace(/\/+$/, ""), attempts, timeout];
    if (token === undefined) return;
    if (!/^[!-~]+$/.test(token)) {
      throw new TypeError("the token is empty or has a character that no token has, such as a line break");
    }
    this.#headers.Authorization = `Bearer ${token}`;
  }

  /**
   * Calls `closure` and commits its operations if all documents that it has read are unchanged. Otherwise the closure
   * runs again, on the new contents.
   */
  async transact<T>(closure: (transaction: Transaction) => T | Promise<T>, options: TransactOptions = {}): Promise<T> {
    const deadline = performance.now() + (options.timeout ?? this.#timeout);
    const known = new Map<string, Read>();
    let used: Target[] = [];
    for (let attempt = 0; attempt < this.#attempts; attempt++) {
      const reserves = options.forUpdate === true || attempt >= RESERVES_FROM;
      const transaction = new Transaction(this, known, deadline, reserves);
      if (reserves) {
        known.clear();
        // One request reserves all documents in one order, so that clients do not block each other.
        if (used.length > 0) await transaction.read(used);
      }
      let run: () => T;
      let failed = false;
      try {
        const value = await closure(transaction);
        run = () => value;
      } catch (error) {
        if (error instanceof GatewayError) throw error;
        // An error may come from contents of different moments, which the gateway compares.
        failed = true;
        run = () => { throw error; };
      }
      used = transaction.used;
      if (await transaction.commit(options.waitFor, failed)) return run();
      if (!(await pause(attempt, 0, deadline))) break;
    }
    throw new Conflict("other transactions changed the documents in each attempt");
  }

  /** Returns the outcome of a transaction: `unknown` while it runs, `forgotten` after its retention. */
  async outcome(tid: string): Promise<Outcome> {
    const path = `/_txn/${encodeURIComponent(tid)}`;
    const { outcome } = await this.send("GET", path, undefined, undefined, performance.now() + this.#timeout);
    if (outcome === undefined) throw new GatewayError("the answer has no outcome");
    return outcome;
  }

  /** Sends a commit again, within 24 hours, and returns if the commit has its effect, once. */
  async repeat({ commit: { path, body, key } }: UnknownOutcome): Promise<void> {
    const { changed } = await this.send("POST", path, body, key, performance.now() + this.#timeout);
    if (changed !== undefined) throw new Conflict("other transactions changed the documents, and nothing was changed");
  }

  /** @internal Sends a request until there is an answer other than a refusal that passes. */
  async send(method: string, path: string, body: string | undefined, key: string | undefined, deadline: number): Promise<Answer> {
    if (body !== undefined && new TextEncoder().encode(body).length > LARGEST_BODY) {
      const detail = `the transaction has more than ${LARGEST_BODY} bytes`;
      throw new GatewayError(detail, 413, { code: "too_large", detail });
    }
    let doubt: Problem | undefined;
    for (let repetition = 0; ; repetition++) {
      const { status, after, answer, isLost } = await this.#exchange(method, path, body, key, deadline);
      const { code } = answer;
      if (key !== undefined && (isLost || code === "unknown")) doubt = answer.tid ? answer : doubt ?? answer;
      if (code === "exists" || code === "refused") throw new Refused(answer.detail ?? code, status, answer);
      if (status === 200 || STORED.includes(code)) return answer;
      const passes = isLost || [0, 429, 503].includes(status) || code === "conflict";
      if (passes && (await pause(repetition, after, deadline))) continue;
      if (doubt !== undefined && key !== undefined) throw new UnknownOutcome({ path, body: body ?? "", key }, doubt);
      const Kind = code === "conflict" ? Conflict : passes ? Unavailable : GatewayError;
      throw new Kind(answer.detail ?? `the gateway answered ${status}`, status, answer);
    }
  }

  async #exchange(method: string, path: string, body: string | undefined, key: string | undefined, deadline: number) {
    const headers = key === undefined ? this.#headers : { ...this.#headers, "Idempotency-Key": key };
    try {
      const signal = AbortSignal.timeout(Math.max(1, Math.ceil(deadline - performance.now())));
      const response = await fetch(this.#url + path, { method, headers, body, signal, redirect: "manual" });
      const { status } = response;
      const text = await response.text();
      const tid = status === 200 ? response.headers.get("X-Transaction-Id") : null;
      const answer: Answer = { ...(tid === null ? {} : { tid }), ...parse(text, status) };
      const refuses = status === 503 && (answer.code === "unavailable" || answer.code === "closing");
      const isLost = status === 502 || status === 504 || (status === 503 && !refuses);
      return { status, after: 1_000 * (Number(response.headers.get("Retry-After")) || 0), answer, isLost };
    } catch (error) {
      const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
      const isLost = !NOT_SENT.includes((cause as { code?: unknown }).code);
      const detail = `${isLost ? "the answer was lost" : "no connection to the gateway"}: ${String(cause)}`;
      return { status: 0, after: 0, answer: { detail } as Answer, isLost };
    }
  }
}

/** Parses an answer. An error of a proxy may be no JSON. */
function parse(text: string, status: number): Answer {
  try {
    return (JSON.parse(text) ?? {}) as Answer;
  } catch (error) {
    if (status === 200) throw error;
    return {};
  }
}

/** Waits with full jitter, after the pause that the gateway asks for. Returns `false` at the deadline. */
async function pause(repetition: number, after: number, deadline: number): Promise<boolean> {
  const pause = after + Math.random() * Math.min(LONGEST_PAUSE, SHORTEST_PAUSE * 2 ** repetition);
  if (performance.now() + pause >= deadline) return false;
  await new Promise((resolve) => setTimeout(resolve, pause));
  return true;
}
