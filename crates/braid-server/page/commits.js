// The slowest recent commits: when, for how long, where the time went, and why.

import { bar } from "./charts.js";
import { h, replaceChanged, setText } from "./dom.js";
import { bytes, clock, counted, duration, percent, whole } from "./format.js";

/** Colours and explanations of the causes, by their names in GET /stats. */
const CAUSES = {
  queue: ["grey", "It waited behind commits of other threads"],
  sync: ["plum", "The device took long to sync the log"],
  memory_full: ["ochre", "Memtables were full: commits came faster than flushes"],
  merge: ["teal", "Merges fell behind: too many unindexed runs, or too much garbage"],
  view_build: ["teal", "Unindexed runs piled up while a view was built"],
  rotation: ["ochre", "The log began a new segment, or a new memtable"],
  full_disk: ["red", "The disk was full"],
  lock: ["ink", "An exclusive transaction, a load, a flush or a close excluded it"],
  conflict: ["ink", "The reads of its transaction were checked"],
  write: ["blue", "Its bytes were prepared and written; a busy processor or page cache counts here"],
};

export function causeName(cause) {
  return cause.replaceAll("_", " ");
}

function explain(commit) {
  let text = CAUSES[commit.cause]?.[1] ?? causeName(commit.cause);
  if (commit.behind) text += `, held up by ${causeName(commit.behind)}`;
  if (commit.background) text += `; ${commit.background.work} had run for ${duration(commit.background.ran_for_us)}`;
  return `${text}.`;
}

function partsOf(parts) {
  return parts.map(({ name, us }) => ({ name: causeName(name), value: us, colour: CAUSES[name]?.[0] ?? "grey" }));
}

/** Returns the table of slow commits, the latest first. Bars have one scale. */
export function slowTable(commits) {
  const longest = Math.max(...commits.map((commit) => commit.took_us));
  const rows = commits.map((commit) => {
    const times = bar(partsOf(commit.parts), duration, "Parts");
    times.firstChild.style.width = `${Math.max(2, (100 * commit.took_us) / longest)}%`;
    const size = `${counted(commit.records, "operation")}, ${bytes(commit.bytes)}`;
    return h("tr", {},
      h("td", { class: "number" }, clock(commit.time_us)),
      h("td", { class: "number strong" }, duration(commit.took_us)),
      h("td", { class: "parts" }, times),
      h("td", {}, explain(commit), " ", h("span", { class: "raw" }, commit.sequence === null ? `It failed. ${size}.` : `Commit ${whole(commit.sequence)}, ${size}.`)));
  });
  const heads = [["At", "number"], ["Took", "number"], ["Parts", null], ["Why", null]];
  return h("div", { class: "rows" }, h("table", { class: "slow" },
    h("thead", {}, h("tr", {}, heads.map(([title, kind]) => h("th", { class: kind, scope: "col" }, title)))), h("tbody", {}, rows)));
}

/** The server lists the latest last. */
export function latestFirst({ slow_commits: slow }) {
  return (slow ?? []).toReversed();
}

/** Returns a table of all slow commits since the open, by cause. */
function totalsTable(totals) {
  const time = totals.reduce((sum, total) => sum + total.part_us, 0);
  const rows = totals.filter((total) => total.part_us > 0).sort((a, b) => b.part_us - a.part_us).map((total) => {
    const fill = h("span", { class: `meter-fill ${CAUSES[total.cause]?.[0] ?? "grey"}` });
    fill.style.width = `${Math.max(0.5, (100 * total.part_us) / time)}%`;
    return h("tr", {}, h("th", { scope: "row", title: CAUSES[total.cause]?.[1] }, causeName(total.cause)),
      h("td", { class: "number" }, whole(total.commits)), h("td", { class: "number" }, duration(total.part_us)), h("td", { class: "number" }, percent(total.part_us, time)), h("td", { class: "meter" }, fill));
  });
  const heads = [["Part", null], ["Main cause of", "number"], ["Time", "number"], ["Share", "number"], ["", null]];
  return h("section", {}, h("h2", {}, "Where the time of slow commits went since the open"), h("div", { class: "rows" }, h("table", {},
    h("thead", {}, h("tr", {}, heads.map(([title, kind]) => h("th", { class: kind, scope: "col" }, title)))), h("tbody", {}, rows))));
}

export function commits() {
  const title = h("p", { class: "lead" });
  const content = h("div", { class: "stack" });
  const node = h("section", {}, h("div", { class: "heading" }, h("h1", {}, "Slow commits")), title, content);
  function update({ stats }) {
    const { slow_commits: slow, slow_commit_totals: totals, engine } = stats;
    if (!slow) {
      setText(title, "This server follows the database: the process that writes it knows its slow commits.");
    } else {
      const count = totals.reduce((sum, total) => sum + total.commits, 0);
      setText(title, count ? `${whole(count)} of ${counted(engine.commits, "commit")} since the open were slow. The last ${whole(slow.length)}:` : `None of ${counted(engine.commits, "commit")} since the open was slow.`);
    }
    replaceChanged(content, slow?.length ? [slowTable(latestFirst(stats)), totalsTable(totals)] : []);
  }
  return { node, update };
}
