// The slowest recent commits, with the parts of their time and the cause.

import { bar } from "./charts.js";
import { h, replaceIf, setText } from "./dom.js";
import { clock, counted, duration, whole } from "./format.js";

const COLOURS = ["plum", "teal", "ochre", "blue", "grey"];

/** Returns the table of slow commits, given with the latest last, and shows the latest first. */
export function slowTable(oldestFirst) {
  const commits = oldestFirst.toReversed();
  const longest = Math.max(...commits.map((commit) => commit.took_us));
  const rows = commits.map((commit) => {
    const parts = commit.parts.map((part, at) => ({ name: words(part.name), value: part.us, colour: COLOURS[at % COLOURS.length] }));
    return h("tr", {},
      h("td", { class: "number" }, clock(commit.time_us)),
      h("td", { class: "number strong" }, duration(commit.took_us)),
      h("td", { class: "parts" }, bar(parts.filter((part) => part.value > 0), duration, `${Math.round((100 * commit.took_us) / longest)} % of the slowest`)),
      h("td", {}, causeOf(commit)));
  });
  return h("div", { class: "rows" }, h("table", { class: "slow" }, h("thead", {}, h("tr", {}, h("th", { class: "number" }, "At"), h("th", { class: "number" }, "Took"), h("th", {}, "Parts"), h("th", {}, "Cause"))), h("tbody", {}, rows)));
}

function causeOf({ cause, behind, background }) {
  const before = behind ? `, behind commits that waited for ${words(behind)}` : "";
  return words(cause) + before + (background ? `; ${background.work} running` : "");
}

function words(name) {
  return name.replaceAll("_", " ");
}

export function commits() {
  const title = h("p", { class: "lead" });
  const list = h("div");
  const node = h("section", {}, h("div", { class: "heading" }, h("h1", {}, "Slow commits")), title, list);
  function update({ stats }) {
    const { slow_commits: slow, engine, server } = stats;
    if (!slow) {
      setText(title, server.follower
        ? "This server follows the database: the process that writes it knows its slow commits."
        : "The engine records no slow commits.");
      return replaceIf(list, "", () => []);
    }
    const most = engine.stalls ? ` The longest wait for a flush since the start: ${duration(engine.stall_us_max)}.` : "";
    setText(title, slow.length
      ? `${counted(slow.length, "commit")} of ${whole(engine.commits)} took longest; the parts say where the time went.${most}`
      : `None of ${counted(engine.commits, "commit")} was slow.${most}`);
    replaceIf(list, JSON.stringify(slow), () => (slow.length ? [slowTable(slow)] : []));
  }
  return { node, update };
}
