// Latencies of requests, from the histograms of the server.

import { h, s } from "./dom.js";
import { duration, rate } from "./format.js";

/** Returns the value below which a share of the counted requests is, by linear steps in a bucket. */
export function quantile(buckets, bounds, share) {
  const all = buckets.reduce((sum, count) => sum + count, 0);
  if (!all) return null;
  let left = share * all;
  for (let at = 0; at < buckets.length; at += 1) {
    if (buckets[at] >= left && buckets[at] > 0) {
      const low = at ? bounds[at - 1] : 0;
      return low + (bounds[at] - low) * (left / buckets[at]);
    }
    left -= buckets[at];
  }
  return bounds.at(-1);
}

/** Returns a table of the last minute; kinds without requests then show those since the start. */
export function latencyTable({ stats, requests }) {
  const { bounds_us: bounds, kinds } = stats.requests;
  const first = requests[0];
  const seconds = (stats.time_us - first.time_us) / 1e6;
  const rows = kinds.filter((kind) => kind.count > 0).map((kind) => {
    const before = first.kinds.find((one) => one.kind === kind.kind);
    const recent = kind.buckets.map((count, at) => count - before.buckets[at]);
    const isRecent = recent.some((count) => count > 0);
    const buckets = isRecent ? recent : kind.buckets;
    const cell = (share) => h("td", { class: "number" }, duration(quantile(buckets, bounds, share)));
    return h("tr", { class: isRecent ? null : "faint", title: isRecent ? "the last minute" : "none in the last minute: since the start" },
      h("th", { scope: "row" }, kind.kind), h("td", { class: "number" }, seconds > 0 ? `${rate((kind.count - before.count) / seconds)}/s` : "–"),
      cell(0.5), cell(0.99), h("td", { class: "strip" }, strip(buckets, bounds)));
  });
  if (!rows.length) return h("p", { class: "empty" }, "This server has answered no requests for records yet.");
  const heads = ["", "Rate", "p50", "p99"].map((title, at) => h("th", { class: at ? "number" : null, scope: "col" }, title));
  return h("div", { class: "rows" }, h("table", { class: "latencies" },
    h("thead", {}, h("tr", {}, heads, h("th", { scope: "col" }, "10 µs to 10 s"))), h("tbody", {}, rows)));
}

/** Draws a histogram from 10 µs to 10 s. */
function strip(buckets, bounds) {
  const top = Math.max(...buckets);
  const bars = buckets.map((count, at) => [bounds[at], count]).filter(([bound]) => bound >= 10 && bound <= 10e6);
  const width = 120 / bars.length;
  return s("svg", { viewBox: "0 0 120 18", preserveAspectRatio: "none", "aria-hidden": "true" },
    bars.filter(([, count]) => count > 0).map(([bound, count]) => {
      const at = bars.findIndex(([other]) => other === bound);
      const height = Math.max(1, 17 * Math.sqrt(count / top));
      return s("rect", { class: "fill teal", x: (at * width).toFixed(2), y: 18 - height, width: (width * 0.85).toFixed(2), height });
    }));
}
