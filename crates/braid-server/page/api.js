// Requests with the token.
//
// The token is kept in the storage of this tab. It comes from the form, or from the fragment of the
// URL, which no browser sends to a server; it is removed from there at once.

const STORED = "braiddb-token";
/** Time for a whole answer in JSON. A server that hangs must not look like one that is busy for ever. */
const PATIENCE_MS = 60_000;

/** The server refused a request: `status`, and the text of its problem. */
export class Refusal extends Error {
  constructor(status, title, detail) {
    super(detail || title);
    this.status = status;
    this.title = title;
  }
}

/** The server did not answer. */
export class Unreachable extends Error {}

export function token() {
  return sessionStorage.getItem(STORED);
}

export function keepToken(text) {
  if (text) sessionStorage.setItem(STORED, text);
  else sessionStorage.removeItem(STORED);
}

/** Takes the token out of `#token=...`. */
export function takeTokenOfFragment() {
  const match = /^#token=([^&]*)&?(.*)$/.exec(location.hash);
  if (!match) return false;
  let given = match[1];
  try {
    given = decodeURIComponent(given);
  } catch {
    // A token with a lone percent sign is taken as it is.
  }
  keepToken(given);
  history.replaceState(null, "", `${location.pathname}#${match[2] || "/"}`);
  return true;
}

/** Returns the error of a request that brought no answer. */
function without(error) {
  if (error.name === "AbortError") return error;
  return new Unreachable(error.name === "TimeoutError" ? "the server does not answer in time" : "the server does not answer");
}

/** Times of the latest requests for records that this page sent. */
const reads = [];
const READS_MAX = 1000;

/** Returns how many requests for records this page sent in the last seconds. */
export function ownReads(seconds) {
  const since = performance.now() - 1000 * seconds;
  return reads.filter((time) => time > since).length;
}

function noteRead(method, path) {
  if (method !== "GET" || !/^\/trees\/[^/?]+\//.test(path)) return;
  reads.push(performance.now());
  if (reads.length > READS_MAX) reads.shift();
}

/** Sends a request; throws `Refusal` or `Unreachable`. */
export async function request(method, path, { headers = {}, body, signal } = {}) {
  let response;
  noteRead(method, path);
  try {
    response = await fetch(path, {
      method,
      body,
      signal,
      cache: "no-store",
      credentials: "omit",
      headers: { ...headers, Authorization: `Bearer ${token() ?? ""}` },
    });
  } catch (error) {
    throw without(error);
  }
  if (response.ok) return response;
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // A proxy's page, or a body that ended early.
  }
  throw new Refusal(response.status, problem.title ?? `Status ${response.status}`, problem.detail);
}

export async function getJson(path, { signal, patience = PATIENCE_MS } = {}) {
  const late = AbortSignal.timeout(patience);
  const response = await request("GET", path, { signal: signal ? AbortSignal.any([signal, late]) : late });
  try {
    return await response.json();
  } catch (error) {
    if (["AbortError", "TimeoutError"].includes(error.name)) throw without(error);
    // A scan that meets damage, or a snapshot that is gone, ends in the middle of its body.
    throw new Refusal(500, "Answer cut off", "the answer ended in its middle: the database may be damaged at this place");
  }
}

/** Browsers take these as steps in a path, in any encoding. */
export function isStep(name) {
  return name === "." || name === "..";
}

export function treePath(name) {
  if (isStep(name)) throw new Refusal(0, "No path", `a browser cannot ask for the tree ${name}: use the command \`braid\``);
  return `/trees/${encodeURIComponent(name)}`;
}
