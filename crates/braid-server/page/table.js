// A table of any number of rows, of which only the visible ones are in the document.
//
// The table is one stop of the tab key. Arrow keys, Page Up, Page Down, Home and End move its current
// row, Enter opens it.

import { h } from "./dom.js";

const OVERSCAN = 8;
let tables = 0;

export class Table {
  /**
   * `columns`: `[{name, title, number, value, show, isWide, help}]`. `value` gives what a click on the
   * head sorts by, `show` a text or a node. `open` is called with a row.
   */
  constructor({ label, columns, rowHeight = 28, open, sort, empty = "none", height }) {
    Object.assign(this, { columns, rowHeight, open, sort: sort ?? null, empty, label });
    this.rows = [];
    this.sorted = [];
    this.current = 0;
    this.id = `table-${(tables += 1)}`;
    this.head = h("tr", { "aria-rowindex": "1" });
    this.body = h("tbody");
    this.table = h("table", { role: "grid", tabindex: "0", "aria-label": label, "aria-readonly": "true" }, h("thead", {}, this.head), this.body);
    this.node = h("div", { class: `rows ${height ?? ""}` }, this.table);
    this.node.addEventListener("scroll", () => this.draw());
    this.table.addEventListener("keydown", (event) => this.onKey(event));
    this.body.addEventListener("click", (event) => this.onClick(event));
    new ResizeObserver(() => this.draw()).observe(this.node);
    this.drawHead();
  }

  drawHead() {
    this.head.replaceChildren(...this.columns.map((column) => {
      const direction = this.sort?.name === column.name ? (this.sort.isDescending ? "descending" : "ascending") : null;
      const button = column.value
        ? h("button", { type: "button", class: "plain", onclick: () => this.sortBy(column) }, column.title, h("span", { "aria-hidden": "true" }, direction === "descending" ? " ↓" : direction === "ascending" ? " ↑" : ""))
        : column.title;
      return h("th", { scope: "col", class: classes(column), "aria-sort": direction, title: column.help }, button);
    }));
  }

  sortBy(column) {
    const isSame = this.sort?.name === column.name;
    this.sort = { name: column.name, isDescending: isSame ? !this.sort.isDescending : Boolean(column.number) };
    this.drawHead();
    this.node.scrollTop = 0;
    this.current = 0;
    this.setRows(this.rows);
  }

  /** Replaces the rows. The current row stays the one with the same `key`. */
  setRows(rows) {
    const key = this.sorted[this.current]?.key;
    this.rows = rows;
    this.sorted = this.inOrder(rows);
    const found = key === undefined ? -1 : this.sorted.findIndex((row) => row.key === key);
    this.current = found >= 0 ? found : Math.min(this.current, Math.max(0, rows.length - 1));
    this.table.setAttribute("aria-rowcount", rows.length + 1);
    this.draw(true);
  }

  inOrder(rows) {
    const column = this.columns.find((one) => one.name === this.sort?.name);
    if (!column) return rows;
    const direction = this.sort.isDescending ? -1 : 1;
    const keyed = rows.map((row) => [column.value(row), row]);
    keyed.sort(([a], [b]) => (a === b ? 0 : (a ?? -1) < (b ?? -1) ? -direction : direction));
    return keyed.map(([, row]) => row);
  }

  draw(isChanged = false) {
    const { rowHeight, sorted } = this;
    const first = Math.max(0, Math.floor(this.node.scrollTop / rowHeight) - OVERSCAN);
    const last = Math.min(sorted.length, first + Math.ceil(this.node.clientHeight / rowHeight) + 2 * OVERSCAN);
    if (!isChanged && first === this.first && last === this.last) return;
    Object.assign(this, { first, last });
    if (!sorted.length) {
      this.body.replaceChildren(h("tr", {}, h("td", { class: "empty", colspan: this.columns.length }, this.empty)));
      return;
    }
    const space = (rows) => {
      const cell = h("td", { colspan: this.columns.length });
      cell.style.height = `${rows * rowHeight}px`;
      return h("tr", { class: "space", "aria-hidden": "true" }, cell);
    };
    const drawn = sorted.slice(first, last).map((row, at) => this.drawRow(row, first + at));
    this.body.replaceChildren(...(first > 0 ? [space(first)] : []), ...drawn, ...(last < sorted.length ? [space(sorted.length - last)] : []));
    this.markCurrent();
  }

  drawRow(row, at) {
    const cells = this.columns.map((column) => h("td", { class: classes(column), "data-title": column.title }, column.show(row)));
    return h("tr", { id: `${this.id}-${at}`, "data-at": at, "aria-rowindex": at + 2, class: row.class ?? null }, cells);
  }

  markCurrent() {
    this.body.querySelector("tr.current")?.classList.remove("current");
    const id = `${this.id}-${this.current}`;
    const present = document.getElementById(id) ?? this.body.querySelector(`#${id}`);
    present?.classList.add("current");
    if (present) this.table.setAttribute("aria-activedescendant", id);
    else this.table.removeAttribute("aria-activedescendant");
  }

  moveTo(at) {
    this.current = Math.max(0, Math.min(this.sorted.length - 1, at));
    const top = this.current * this.rowHeight;
    const room = this.node.clientHeight - 2 * this.rowHeight;
    if (top < this.node.scrollTop) this.node.scrollTop = top;
    else if (top > this.node.scrollTop + room) this.node.scrollTop = top - room;
    this.draw();
    this.markCurrent();
  }

  onKey(event) {
    if (event.target !== this.table || event.ctrlKey || event.altKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.node.clientHeight / this.rowHeight) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      event.preventDefault();
      this.moveTo(Math.max(0, Math.min(this.sorted.length - 1, this.current + steps[event.key])));
      this.moved?.(this.sorted[this.current]);
    } else if (event.key === "Enter" && this.open && this.sorted[this.current]) {
      event.preventDefault();
      this.open(this.sorted[this.current]);
    }
  }

  onClick(event) {
    const at = Number(event.target.closest("tr[data-at]")?.dataset.at ?? NaN);
    if (Number.isNaN(at) || event.target.closest("a, button")) return;
    this.current = at;
    this.markCurrent();
    if (this.open && !String(getSelection())) this.open(this.sorted[at]);
  }
}

function classes(column) {
  return [column.number ? "number" : null, column.isWide ? "wide" : null, column.class].filter(Boolean).join(" ") || null;
}
