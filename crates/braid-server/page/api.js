// Requests with the token.
//
// The token is kept in the storage of this tab. It comes from the form, or from the fragment of the
// URL, which no browser sends to a server; it is removed from there at once.

const STORED = "braiddb-token";

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

/** Sends a request; throws `Refusal` or `Unreachable`. */
export async function request(method, path, { headers = {}, body, signal } = {}) {
  let response;
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
    if (error.name === "AbortError") throw error;
    throw new Unreachable("the server does not answer");
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

export async function getJson(path, options) {
  const response = await request("GET", path, options);
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    // A scan that meets damage, or a snapshot that is gone, ends in the middle of its body.
    throw new Refusal(500, "Answer cut off", "the answer ended in its middle: the database may be damaged at this place");
  }
}

export function treePath(name) {
  // Names of one or two dots would be taken as steps in the path.
  return `/trees/${encodeURIComponent(name)}`;
}
