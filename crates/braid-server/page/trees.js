// All trees, with their sizes and growth.

import { h, setText } from "./dom.js";
import { bytes, counted, duration, rate, short, whole } from "./format.js";
import { Table } from "./table.js";
import { isStep, request, treePath } from "./api.js";

export function treeLink(name) {
  return `#/trees/${encodeURIComponent(name)}`;
}

export function trees(app) {
  const table = new Table({
    label: "Trees",
    sort: { name: "name", isDescending: false },
    empty: "no tree has such a name",
    height: "tall",
    open: (row) => (location.hash = treeLink(row.name)),
    columns: [
      { name: "name", title: "Tree", value: (row) => row.name, class: "key", show: (row) => h("a", { href: treeLink(row.name), tabindex: "-1" }, row.name) },
      { name: "records", title: "Records", number: true, help: "Estimate from the sizes of runs and views", value: (row) => row.records, show: (row) => short(row.records) },
      { name: "bytes", title: "Size", number: true, help: "Estimate, as stored", value: (row) => row.bytes, show: (row) => bytes(row.bytes) },
      { name: "growth", title: "Growth", number: true, isWide: true, help: "Change of the estimate in bytes per second, between the last two lists", value: (row) => row.growth, show: (row) => growth(row.growth) },
      { name: "ttl", title: "Lifetime", number: true, isWide: true, help: "Default time to live of records", value: (row) => row.ttl, show: (row) => (row.ttl === null ? "" : duration(row.ttl * 1e6)) },
      { name: "kind", title: "Form", isWide: true, value: (row) => row.form, show: (row) => row.form },
    ],
  });
  const filter = h("input", { id: "tree-filter", type: "search", placeholder: "part of a name", spellcheck: "false", autocomplete: "off", oninput: () => draw(app) });
  const count = h("p", { class: "count", role: "status" });
  const error = h("p", { class: "error", role: "alert", hidden: true });
  const creation = createForm(app, filter);
  const node = h("section", {},
    h("div", { class: "heading" }, h("h1", {}, "Trees"), h("div", { class: "tools" }, h("label", { for: "tree-filter" }, "Filter"), filter, creation.button)),
    creation.form, error, table.node, count);

  function draw() {
    creation.show(app.stats?.server.write);
    error.hidden = app.treesError === null;
    if (app.treesError) setText(error, `The trees cannot be listed: ${app.treesError.message}`);
    if (!app.trees) return setText(count, app.treesError ? "" : "reading the list of trees");
    const wanted = filter.value.toLowerCase();
    const rows = app.trees.list.filter((tree) => tree.name.toLowerCase().includes(wanted)).map((tree) => toRow(app, tree));
    table.empty = app.trees.list.length ? "no tree has such a name" : "the database has no trees yet";
    table.setRows(rows);
    const records = rows.reduce((sum, row) => sum + row.records, 0);
    const shown = rows.length === app.trees.list.length ? counted(rows.length, "tree") : `${whole(rows.length)} of ${counted(app.trees.list.length, "tree")}`;
    if (!app.trees.hasSizes) return setText(count, `${shown}; reading their sizes`);
    setText(count, `${shown}, about ${short(records)} records and ${bytes(rows.reduce((sum, row) => sum + row.bytes, 0))}`);
  }
  return { node, update: draw };
}

function toRow({ trees: { at }, treesBefore }, tree) {
  const before = treesBefore?.byName.get(tree.name);
  const seconds = (at - treesBefore?.at) / 1000;
  return {
    key: tree.name,
    name: tree.name,
    records: tree.records_estimate,
    bytes: tree.bytes_estimate,
    growth: before && seconds > 0 ? (tree.bytes_estimate - before.bytes_estimate) / seconds : null,
    ttl: tree.ttl,
    form: [tree.kind === "multi" ? "many values" : "", tree.codec ?? ""].filter(Boolean).join(", "),
  };
}

function growth(value) {
  if (value === null) return "–";
  if (Math.abs(value) < 0.5) return "0";
  return `${value < 0 ? "−" : "+"}${rate(Math.abs(value), bytes)}/s`;
}

function createForm(app, before) {
  const name = h("input", { id: "new-tree", required: true, spellcheck: "false", autocomplete: "off" });
  const result = h("p", { class: "error", role: "alert" });
  const form = h("form", { class: "inline", hidden: true, onsubmit: submit },
    h("label", { for: "new-tree" }, "Name of the new tree"), name, h("button", { class: "main" }, "Create"),
    h("button", { type: "button", onclick: close }, "Cancel"), result);
  const button = h("button", { type: "button", hidden: true, onclick: open }, "New tree");
  function open() {
    form.hidden = false;
    name.focus();
  }
  function close() {
    form.hidden = true;
    setText(result, "");
    before.focus();
  }
  async function submit(event) {
    event.preventDefault();
    if (isStep(name.value)) return setText(result, "Browsers take this name as a step in a path: choose another.");
    try {
      await request("PUT", treePath(name.value), { headers: { "If-None-Match": "*" } });
      await app.refreshTrees();
      location.hash = treeLink(name.value);
    } catch (error) {
      setText(result, error.status === 412 ? "A tree has this name." : error.message);
    }
  }
  return { button, form, show: (mayWrite) => (button.hidden = !mayWrite) };
}
