// All partitions: the map, the figures of the chosen one, and a table.

import { h, replaceIf, setText } from "./dom.js";
import { bytes, counted, percent, short, whole } from "./format.js";
import { bytesOf, firstKey, Skyline } from "./skyline.js";
import { Table } from "./table.js";

export function partitions(app, query) {
  const filter = h("input", { id: "partition-tree", type: "search", placeholder: "all trees", spellcheck: "false", autocomplete: "off", list: "tree-names", value: query.get("tree") ?? "" });
  const names = h("datalist", { id: "tree-names" });
  const sums = h("p", { class: "facts" });
  const detail = h("div", { class: "detail", "aria-live": "polite" });
  let shown = [];
  const skyline = new Skyline({ height: 72, choose: (at) => choose(shown[at]) });
  const table = new Table({
    label: "Partitions",
    empty: "no partitions: all data is in the log and in memory",
    height: "middle",
    open: (row) => choose(row),
    columns: [
      { name: "at", title: "No.", number: true, class: "place", value: (row) => row.at, show: (row) => whole(row.at + 1) },
      { name: "from", title: "From", class: "key", value: (row) => row.at, show: (row) => firstKey(row.partition).slice(0, 80) },
      { name: "bytes", title: "Size", number: true, value: (row) => row.bytes, show: (row) => bytes(row.bytes) },
      { name: "runs", title: "Runs", number: true, isWide: true, value: (row) => row.partition.runs.length, show: (row) => whole(row.partition.runs.length) },
      { name: "unindexed", title: "Unindexed", number: true, value: (row) => row.partition.unindexed.length, show: (row) => row.partition.unindexed.length || "" },
      { name: "entries", title: "Entries", number: true, isWide: true, value: (row) => row.entries, show: (row) => short(row.entries) },
      { name: "garbage", title: "Garbage", number: true, isWide: true, help: "Entries that the view knows to be garbage", value: (row) => row.garbage, show: (row) => (row.partition.garbage ? percent(row.partition.garbage, row.entries) : "") },
      { name: "view", title: "View", number: true, isWide: true, value: (row) => row.partition.view_bytes, show: (row) => (row.partition.view_bytes ? bytes(row.partition.view_bytes) : "") },
    ],
  });
  table.moved = (row) => choose(row);
  const node = h("section", {},
    h("div", { class: "heading" }, h("h1", {}, "Partitions"), h("div", { class: "tools" }, h("label", { for: "partition-tree" }, "Tree"), filter, names)),
    sums, skyline.node, detail, table.node);
  let chosen = null;
  filter.addEventListener("input", () => update(app));

  function choose(row) {
    if (!row) return;
    chosen = row.at;
    skyline.chosen = shown.indexOf(row);
    skyline.draw();
    showDetail();
    if (table.sorted[table.current] !== row) table.moveTo(table.sorted.indexOf(row));
  }

  function showDetail() {
    const row = shown.find((one) => one.at === chosen);
    replaceIf(detail, row ? JSON.stringify(row) : "", () => (row ? [detailOf(row)] : []));
  }

  function update({ stats, trees }) {
    const list = stats.partition_list;
    if (!list) return setText(sums, "reading the partitions");
    replaceIf(names, String(trees?.list.length), () => (trees?.list ?? []).slice(0, 500).map((tree) => h("option", { value: tree.name })));
    const wanted = filter.value.trim();
    shown = rowsOf(list, wanted ? trees?.byName.get(wanted)?.id : null, wanted);
    skyline.set(shown.map((row) => row.partition));
    table.setRows(shown);
    const all = shown.reduce((sum, row) => sum + row.bytes, 0);
    const unindexed = shown.reduce((sum, row) => sum + row.partition.unindexed.length, 0);
    setText(sums, wanted && !trees?.byName.has(wanted) && !shown.length
      ? `No tree is named ${wanted}.`
      : `${counted(shown.length, "partition")} · ${bytes(all)} · ${counted(shown.reduce((sum, row) => sum + row.partition.runs.length, 0), "run")} · ${counted(unindexed, "unindexed run")}`);
    showDetail();
  }
  return { node, update, wantsPartitions: true, leave: () => skyline.leave() };
}

/** Returns the rows that hold keys of a tree: a partition reaches to the first key of the next one. */
function rowsOf(list, tree, wanted) {
  return list.flatMap((partition, at) => {
    if (wanted) {
      if (tree === undefined) return [];
      const next = list[at + 1];
      const begins = (partition.tree_id ?? 0) <= tree;
      const ends = !next || next.tree_id > tree || (next.tree_id === tree && next.key !== "");
      if (!begins || !ends) return [];
    }
    const { runs, unindexed } = bytesOf(partition);
    const entries = [...partition.runs, ...partition.unindexed].reduce((sum, run) => sum + run.entries, 0);
    return [{ key: `${partition.tree_id}:${JSON.stringify(partition.key)}`, at, partition, bytes: runs + unindexed, entries, garbage: entries ? partition.garbage / entries : 0 }];
  });
}

function detailOf({ at, partition, bytes: size, entries }) {
  const largest = Math.max(1, ...partition.runs.concat(partition.unindexed).map((run) => run.bytes));
  const row = (kind, colour) => (run) => h("tr", {}, h("th", { scope: "row" }, `${kind} ${run.number}`), h("td", { class: "number" }, bytes(run.bytes)), h("td", { class: "number" }, whole(run.entries)),
    h("td", { class: "number wide" }, run.bytes ? `${(run.raw_bytes / run.bytes).toFixed(2)}` : ""), h("td", { class: "meter" }, meter(run.bytes / largest, colour)));
  const view = partition.view_entries
    ? `Its view orders ${counted(partition.view_entries, "entry", "entries")} in ${bytes(partition.view_bytes)}; ${partition.garbage ? `${whole(partition.garbage)} of them (${percent(partition.garbage, partition.view_entries)}) are garbage.` : "none is garbage."}`
    : partition.runs.length > 1 ? "Its view is to be built." : "One run needs no view.";
  return h("div", {}, h("h2", {}, `Partition ${at + 1}`), h("p", {}, `From ${firstKey(partition)}. ${bytes(size)}, ${counted(entries, "entry", "entries")}. ${view}`),
    h("div", { class: "rows" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "Run"), h("th", { class: "number" }, "Size"), h("th", { class: "number" }, "Entries"), h("th", { class: "number wide", title: "Bytes of keys and values per byte of the file" }, "Ratio"), h("th", {}))),
      h("tbody", {}, partition.runs.map(row("run", "teal")), partition.unindexed.map(row("unindexed", "ochre"))))));
}

function meter(share, name) {
  const fill = h("span", { class: `meter-fill ${name}` });
  fill.style.width = `${Math.max(1, 100 * share)}%`;
  return fill;
}
