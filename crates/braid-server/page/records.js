// The records of a tree: search by prefix, page by page at one snapshot, and the chosen record.

import { getJson, Refusal, treePath } from "./api.js";
import { guess, later, NOTATIONS, ofJson, toHex, toPercent } from "./bytes.js";
import { h, setText } from "./dom.js";
import { bytes, duration, short, whole } from "./format.js";
import { Record } from "./record.js";
import { Table } from "./table.js";
import { preview, VALUE_NOTATIONS } from "./values.js";

const PAGE = 100;
/** Width of a character of a key in pixels, and the space beside it. */
const KEY_CHARACTER = 7.6;
const KEY_SPACE = 18;

export function records(app, name, query) {
  return new Records(app, name, query);
}

class Records {
  constructor(app, name, query) {
    Object.assign(this, { app, name, wantsPartitions: false, keyNotation: "auto", valueNotation: "auto", pages: [], found: [], rows: [], chosen: null, width: 8 });
    this.aborter = new AbortController();
    this.table = new Table({
      label: `Records of ${name}`,
      height: "tall",
      empty: "no records here",
      open: (row) => this.choose(row),
      columns: [
        { name: "key", title: "Key", class: "key", show: (row) => this.showKey(row.bytes) },
        { name: "value", title: "Value", class: "value", show: (row) => this.showValue(row) },
      ],
    });
    this.table.moved = () => {};
    this.record = new Record(this);
    this.build(query);
    this.search();
  }

  build(query) {
    const select = (id, label, options, change) => [h("label", { for: id }, label), h("select", { id, onchange: change }, options.map(([value, title]) => h("option", { value }, title)))];
    this.prefix = h("input", { id: "prefix", type: "search", spellcheck: "false", autocomplete: "off", value: query.get("prefix") ?? "", "aria-describedby": "search-error" });
    this.start = h("input", { id: "start", type: "search", spellcheck: "false", autocomplete: "off", placeholder: "the first key", "aria-describedby": "search-error" });
    this.reverse = h("input", { id: "reverse", type: "checkbox", onchange: () => this.search() });
    this.error = h("p", { id: "search-error", class: "error", role: "alert" });
    this.facts = h("p", { class: "facts" });
    this.status = h("span", { role: "status" });
    this.back = h("button", { type: "button", onclick: () => this.turn(-1) }, "Previous page");
    this.forward = h("button", { type: "button", onclick: () => this.turn(1) }, "Next page");
    this.create = h("button", { type: "button", hidden: true, onclick: () => this.record.create() }, "New record");
    const notations = Object.entries(NOTATIONS).map(([value, { title }]) => [value, title]);
    const form = h("form", { class: "search", onsubmit: (event) => (event.preventDefault(), this.search()) },
      h("span", { class: "field grow" }, h("label", { for: "prefix" }, "Prefix"), this.prefix),
      h("span", { class: "field grow" }, h("label", { for: "start" }, "From"), this.start),
      h("span", { class: "field" }, select("key-notation", "Keys", [["auto", "as they are"], ...notations], (event) => this.setNotation("keyNotation", event.target.value))),
      h("span", { class: "field" }, select("value-notation", "Values", [["auto", "as they are"], ...Object.entries(VALUE_NOTATIONS).map(([value, { title }]) => [value, title])], (event) => this.setNotation("valueNotation", event.target.value))),
      h("span", { class: "field check" }, this.reverse, h("label", { for: "reverse" }, "backwards")),
      h("span", { class: "field" }, h("button", { class: "main" }, "Search")));
    this.node = h("section", { class: "browser" },
      h("div", { class: "heading" }, h("h1", {}, h("a", { href: "#/trees", class: "up" }, "Trees"), " / ", this.name), h("div", { class: "tools" }, h("a", { href: `#/partitions?tree=${encodeURIComponent(this.name)}` }, "partitions"), this.create)),
      this.facts, form, this.error,
      h("div", { class: "split" },
        h("div", { class: "list" }, this.table.node, h("div", { class: "pager" }, this.back, this.forward, this.status)),
        this.record.node));
  }

  leave() {
    this.aborter.abort();
  }

  update({ stats, trees }) {
    const tree = trees?.byName.get(this.name);
    const isFirst = tree && !this.info;
    this.info = tree;
    this.create.hidden = !stats.server.write || tree?.kind === "multi";
    this.record.setWrite(stats.server.write);
    if (!tree) return;
    if (isFirst) {
      this.setRows();
      if (this.chosen) this.choose(this.chosen);
    }
    setText(this.facts, [tree.records_estimate === null ? null : `about ${short(tree.records_estimate)} records`, tree.bytes_estimate === null ? null : `${bytes(tree.bytes_estimate)} stored`,
      tree.codec ? `codec ${tree.codec}` : null, tree.ttl === null ? null : `records live ${duration(tree.ttl * 1e6)}`,
      tree.kind === "multi" ? "many values per key" : null].filter(Boolean).join(" · "));
    if (tree.codec && !this.hasCodec) {
      this.hasCodec = true;
      this.drawRows();
    }
  }

  // ------------------------------------------------------------------------------------ notation

  /** Returns the notation of keys: the chosen one, or one that suits all keys of the page. */
  notation() {
    if (this.keyNotation !== "auto") return this.keyNotation;
    return this.rows.length || this.info?.codec ? guess(this.rows.map((row) => row.bytes), this.info?.codec) : "text";
  }

  setNotation(field, value) {
    this[field] = value;
    this.drawRows();
    this.record.redraw();
  }

  showKey(key) {
    const shown = NOTATIONS[this.notation()].show(key);
    return shown === null ? h("span", { class: "raw" }, `0x${toHex(key)}`) : shown === "" ? h("span", { class: "raw" }, "empty") : shown.slice(0, 400);
  }

  showValue(row) {
    if (row.value === null) return h("span", { class: "raw" }, `${bytes(row.length)}, not read`);
    return preview(row.value, this.valueNotation, this.info?.codec);
  }

  /** Parses a key in the present notation; throws an error with a text. */
  parseKey(text) {
    const notation = NOTATIONS[this.notation()];
    try {
      return notation.parse(text, this.width);
    } catch (error) {
      throw new Error(`The key is no ${notation.title}: ${error.message}`);
    }
  }

  // -------------------------------------------------------------------------------------- search

  /** Returns the parameters of the search, or `null` after a message about a wrong one. */
  parameters() {
    const notation = this.notation();
    const parse = (input, title) => {
      if (input.value === "") return null;
      try {
        // Digits of integers name the first bytes only in hexadecimal: a prefix of a number is none.
        return NOTATIONS[notation].parse(input.value, this.width);
      } catch (error) {
        throw new Error(`${title}: ${error.message}. It is read as ${NOTATIONS[notation].title}, such as ${NOTATIONS[notation].hint}.`);
      }
    };
    const parameters = [];
    const prefix = parse(this.prefix, "Prefix");
    const start = parse(this.start, "From");
    if (prefix) {
      if (notation === "tuple") {
        // Whole elements: no element begins with 0xff, and a text with a zero byte continues with it.
        parameters.push(`start=${toPercent(start ? later(start, prefix) : prefix)}`, `end=${toPercent(Uint8Array.of(...prefix, 0xff))}`);
        return parameters;
      }
      parameters.push(`prefix=${toPercent(prefix)}`);
    }
    if (start) parameters.push(`start=${toPercent(start)}`);
    return parameters;
  }

  async search() {
    let parameters;
    try {
      parameters = this.parameters();
      setText(this.error, "");
    } catch (error) {
      return setText(this.error, error.message);
    }
    if (this.reverse.checked) parameters.push("reverse=true");
    this.pages = [[...parameters, `limit=${PAGE}`].join("&")];
    this.at = 0;
    const place = this.prefix.value ? `?prefix=${encodeURIComponent(this.prefix.value)}` : "";
    history.replaceState(null, "", `#/trees/${encodeURIComponent(this.name)}${place}`);
    await this.load();
  }

  turn(step) {
    this.at += step;
    return this.load();
  }

  async load() {
    this.aborter.abort();
    this.aborter = new AbortController();
    const { signal } = this.aborter;
    setText(this.status, "reading");
    this.back.disabled = this.forward.disabled = true;
    try {
      const page = await getJson(`${treePath(this.name)}/?${this.pages[this.at]}`, { signal });
      this.take(page);
    } catch (error) {
      if (error.name === "AbortError") return;
      setText(this.status, "");
      if (error instanceof Refusal && error.status === 410) return this.offerAgain();
      if (error instanceof Refusal && error.status !== 401) {
        this.table.setRows([]);
        return setText(this.error, error.message);
      }
      this.app.fail(error);
      setText(this.status, "not read");
      this.back.disabled = this.at === 0;
    }
  }

  take({ records: found, next }) {
    this.pages.length = this.at + 1;
    if (next) this.pages.push(`next=${next}&limit=${PAGE}`);
    this.found = found;
    setText(this.error, "");
    this.back.disabled = this.at === 0;
    this.forward.disabled = !next;
    setText(this.status, found.length ? `${whole(this.at * PAGE + 1)} to ${whole(this.at * PAGE + found.length)}${next ? "" : ", the end"}` : "");
    this.table.node.scrollTop = 0;
    this.table.current = 0;
    this.chosen = null;
    this.setRows();
  }

  /** The list of trees, which knows the tree's kind, may arrive after the records. */
  setRows() {
    const isMulti = this.info?.kind === "multi";
    this.rows = this.found.map((record) => {
      const key = ofJson(record.key);
      // A key of a tree with many values has a row for each.
      return { key: toHex(key) + (isMulti ? ` ${JSON.stringify(record.value)}` : ""), bytes: key, value: record.value === undefined ? null : ofJson(record.value), length: record.bytes };
    });
    if (this.rows.length && this.rows.every((row) => row.bytes.length === this.rows[0].bytes.length)) this.width = this.rows[0].bytes.length;
    this.drawRows();
  }

  drawRows() {
    const notation = NOTATIONS[this.notation()];
    this.prefix.placeholder = `any, or ${notation.hint}`;
    this.table.setRows(this.rows);
    this.fitKeys();
  }

  /** Gives the keys the room that they need, up to six tenths: values are seen whole beside the table. */
  fitKeys() {
    const longest = Math.max(8, ...this.rows.map((row) => this.showKey(row.bytes)).map((key) => (key.textContent ?? key).length));
    const room = this.table.node.clientWidth;
    this.table.head.firstChild.style.width = `${room ? Math.min(0.6, (longest * KEY_CHARACTER + KEY_SPACE) / room) * 100 : 36}%`;
  }

  /** The server keeps the snapshot of a scan for a minute after its last use. */
  offerAgain() {
    this.error.replaceChildren("The snapshot of this search is gone: the server keeps one for a minute. ",
      h("button", { type: "button", onclick: () => this.search() }, "Search again"));
  }

  choose(row) {
    if (!this.info && !this.app.treesError) {
      // Until the tree's kind is known.
      this.chosen = row;
      return this.record.clear("Reading the record.");
    }
    this.chosen = null;
    if (this.info?.kind === "multi") this.record.showPair(row.bytes, row.value);
    else this.record.show(row.bytes);
  }
}
