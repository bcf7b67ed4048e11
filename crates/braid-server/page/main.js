// The frame of the page: token, polling, navigation, and what to show when something fails.

import { Refusal, Unreachable, getJson, keepToken, takeTokenOfFragment, token } from "./api.js";
import { commits } from "./commits.js";
import { h, replaceIf, setText } from "./dom.js";
import { clock } from "./format.js";
import { overview } from "./overview.js";
import { partitions } from "./partitions.js";
import { records } from "./records.js";
import { Samples } from "./samples.js";
import { trees } from "./trees.js";

const PERIOD_MS = 2000;
/** Maximum pause between tries of a server that does not answer. */
const PAUSE_MAX_MS = 15_000;
/** Time for an answer with the statistics. */
const PATIENCE_MS = 10_000;
/** The list of trees is read again after this time, or after 20 times its duration. */
const TREES_PERIOD_MS = 5000;

const PARTS = [
  { path: "", title: "Overview", create: overview },
  { path: "trees", title: "Trees", create: trees },
  { path: "partitions", title: "Partitions", create: partitions },
  { path: "commits", title: "Slow commits", create: commits },
];

const main = document.getElementById("main");
const banner = document.getElementById("banner");

/** The state that all parts share. */
const app = {
  stats: null,
  samples: new Samples(),
  /** Requests of each poll of the last minute, by kind: for latencies. */
  requests: [],
  trees: null,
  treesBefore: null,
  treesError: null,
  refreshTrees: () => readTrees(true),
  /** Shows an error of a part; a missing token asks for one. */
  fail: (error) => show(error),
};

let part = null;
let timer = 0;
let failures = 0;
let isPolling = false;
let lastAnswer = null;

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [first, ...others] = path.split("/");
  return { first, name: others.join("/"), query: new URLSearchParams(query) };
}

function navigate() {
  const { first, name, query } = route();
  if (token() === null) return askForToken();
  part?.leave?.();
  const chosen = PARTS.find((one) => one.path === first) ?? PARTS[0];
  const isTree = first === "trees" && name;
  part = isTree ? records(app, decode(name), query) : chosen.create(app, query);
  main.replaceChildren(part.node);
  main.dataset.part = isTree ? "records" : chosen.path || "overview";
  showNavigation(chosen);
  const place = isTree ? decode(name) : chosen.title;
  document.title = `${place} – ${app.stats?.server.name ?? "BraidDB"}`;
  if (app.stats) part.update?.(app);
  poll();
}

function decode(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

function showNavigation(chosen) {
  document.getElementById("nav").replaceChildren(...PARTS.map((one) =>
    h("a", { href: `#/${one.path}`, "aria-current": one === chosen ? "page" : null }, one.title)));
}

// ---------------------------------------------------------------------------------------- token

function askForToken(message) {
  clearTimeout(timer);
  part?.leave?.();
  part = null;
  document.getElementById("nav").replaceChildren();
  setText(document.getElementById("live"), "not connected");
  document.getElementById("live").dataset.state = "off";
  hideBanner();
  const input = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "token-help" });
  const form = h("form", { class: "token", onsubmit: submit },
    h("h1", {}, "This server asks for its token"),
    h("p", { id: "token-help" }, "It is the one that ", h("code", {}, "braid serve"), " printed at its start, or was given with ", h("code", {}, "BRAID_TOKEN"), ". This tab keeps it until it is closed."),
    message ? h("p", { class: "error", role: "alert" }, message) : null,
    h("label", { for: "token" }, "Token"), input, h("button", { class: "main" }, "Open"));
  main.replaceChildren(form);
  main.dataset.part = "token";
  input.focus();
  function submit(event) {
    event.preventDefault();
    keepToken(input.value.trim());
    navigate();
  }
}

function forgetToken() {
  keepToken(null);
  app.stats = null;
  app.trees = null;
  app.samples = new Samples();
  askForToken();
}

// -------------------------------------------------------------------------------------- polling

async function poll() {
  if (isPolling || token() === null) return;
  clearTimeout(timer);
  isPolling = true;
  try {
    const wanted = part?.wantsPartitions ? "partitions=true&" : "";
    const stats = await getJson(`/stats?${wanted}since=${app.samples.last()}`, { patience: PATIENCE_MS });
    // A token was forgotten meanwhile.
    if (token() === null) return;
    take(stats);
    failures = 0;
    hideBanner();
    readTrees(false);
  } catch (error) {
    failures += 1;
    show(error);
    if (error instanceof Refusal && error.status === 401) return;
  } finally {
    isPolling = false;
  }
  if (!document.hidden) timer = setTimeout(poll, Math.min(PAUSE_MAX_MS, PERIOD_MS * 2 ** Math.min(failures, 3)));
}

function take(stats) {
  const isFirst = app.stats === null;
  // Only some answers have the list of partitions.
  if (!stats.partition_list && app.stats?.partition_list) stats.partition_list = app.stats.partition_list;
  app.stats = stats;
  app.samples.add(stats.samples);
  app.requests.push({ time_us: stats.time_us, kinds: stats.requests.kinds });
  while (app.requests.length > 1 && app.requests[0].time_us < stats.time_us - 60e6) app.requests.shift();
  lastAnswer = Date.now();
  const { name, write, follower } = stats.server;
  setText(document.getElementById("name"), name ?? "BraidDB");
  setText(document.getElementById("access"), write ? "read and write" : follower ? "read-only, follows its owner" : "read-only");
  const live = document.getElementById("live");
  setText(live, "live");
  live.dataset.state = "live";
  if (isFirst && main.dataset.part === "overview") document.title = `Overview – ${name ?? "BraidDB"}`;
  part?.update?.(app);
}

function takeTrees({ trees }) {
  app.trees = { at: Date.now(), list: trees, hasSizes: false, byName: new Map(trees.map((tree) => [tree.name, tree])) };
}

let treesDue = 0;
let isReadingTrees = false;

async function readTrees(isNow) {
  if (isReadingTrees || (!isNow && Date.now() < treesDue)) return;
  isReadingTrees = true;
  const began = Date.now();
  try {
    // Names come at once, sizes of thousands of trees after seconds.
    if (!app.trees) {
      takeTrees(await getJson("/trees?sizes=false"));
      app.treesBefore = null;
      if (app.stats) part?.update?.(app);
    }
    const before = app.trees.hasSizes ? app.trees : null;
    takeTrees(await getJson("/trees"));
    app.trees.hasSizes = true;
    app.treesBefore = before;
    app.treesError = null;
  } catch (error) {
    // Damage of one tree must not hide the statistics.
    app.treesError = error;
  } finally {
    isReadingTrees = false;
    treesDue = Date.now() + Math.max(TREES_PERIOD_MS, 20 * (Date.now() - began));
  }
  if (app.stats) part?.update?.(app);
}

// --------------------------------------------------------------------------------------- errors

function show(error) {
  if (error instanceof Refusal && error.status === 401) {
    keepToken(null);
    return askForToken("The server does not accept this token.");
  }
  const live = document.getElementById("live");
  if (error instanceof Unreachable) {
    live.dataset.state = "gone";
    setText(live, "no answer");
    const since = lastAnswer ? `Its last answer was at ${clock(lastAnswer * 1000)}; the figures are from then. ` : "";
    return showBanner(`The server does not answer. ${since}The page goes on trying.`);
  }
  live.dataset.state = "gone";
  setText(live, error instanceof Refusal ? `status ${error.status}` : "error");
  showBanner(error instanceof Refusal ? `${error.title}: ${error.message}.` : `The page has a fault: ${error.message}`);
  if (!(error instanceof Refusal)) console.error(error);
}

function showBanner(text) {
  replaceIf(banner, text, () => [h("p", {}, text)]);
  document.body.dataset.stale = "true";
}

function hideBanner() {
  replaceIf(banner, "", () => []);
  delete document.body.dataset.stale;
}

// ---------------------------------------------------------------------------------------- start

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.querySelector(".state").append(h("button", { class: "plain", type: "button", onclick: forgetToken, title: "Forget the token of this tab" }, "forget token"));
window.addEventListener("hashchange", () => {
  takeTokenOfFragment();
  navigate();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) poll();
});
takeTokenOfFragment();
navigate();
