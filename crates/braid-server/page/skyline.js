// The map of partitions: a tower for each, in the order of keys, on a canvas.
//
// From the ground up: the runs of its view, the share of garbage hatched, and on top its unindexed
// runs. All towers have one scale. If there are more partitions than columns of the wanted rows,
// neighbours share a tower.

import { colour, h, setText } from "./dom.js";
import { bytes, counted, percent, whole } from "./format.js";
import { ofJson, toHex, toText } from "./bytes.js";

const GAP = 1;
const MIN_WIDTH = 3;
const MAX_WIDTH = 48;
const LABEL = 14;

export function bytesOf(partition) {
  const sum = (runs) => runs.reduce((all, run) => all + run.bytes, 0);
  return { runs: sum(partition.runs), unindexed: sum(partition.unindexed) };
}

/** Returns the first key of a partition as a text. */
export function firstKey(partition) {
  if (partition.tree_id === null) return "the first key";
  const key = ofJson(partition.key);
  const name = partition.tree ?? `tree ${partition.tree_id}, dropped`;
  return `${name}${key.length ? ` · ${toText(key) ?? `0x${toHex(key.slice(0, 16))}`}` : ""}`;
}

/** Returns the tree in which a partition begins. The first one has no first key, and begins with the first tree. */
export function treeOf(partition) {
  return partition.tree ?? (partition.tree_id === null ? "" : `tree ${partition.tree_id}`);
}

export class Skyline {
  /** `rows`: maximum rows, 0 for any number. `height` of a row. `choose` is called with an index. */
  constructor({ rows = 0, height = 64, choose }) {
    Object.assign(this, { maxRows: rows, rowHeight: height, choose, partitions: [], chosen: null });
    this.canvas = h("canvas", { role: "img", tabindex: choose ? "0" : null });
    this.caption = h("p", { class: "legend map-legend", "aria-hidden": "true" },
      [["teal", "runs"], ["hatch", "garbage in them"], ["ochre", "unindexed runs"]].map(([name, text]) => h("span", {}, h("i", { class: name }), text)));
    this.reading = h("span", { class: "reading" });
    this.caption.append(this.reading);
    this.node = h("div", { class: "skyline" }, this.canvas, this.caption);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.show(null));
    if (choose) {
      this.canvas.addEventListener("click", () => this.pointed !== null && this.pick(this.towers[this.pointed].first));
      this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    }
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.node);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.onScheme = () => this.draw();
    this.scheme.addEventListener("change", this.onScheme);
  }

  leave() {
    this.observer.disconnect();
    this.scheme.removeEventListener("change", this.onScheme);
  }

  set(partitions) {
    this.partitions = partitions;
    this.draw();
  }

  pick(index) {
    this.chosen = index;
    this.draw();
    this.choose?.(index);
  }

  onKey(event) {
    const last = this.partitions.length - 1;
    const present = this.chosen ?? -1;
    const to = { ArrowLeft: present - 1, ArrowRight: present + 1, ArrowUp: present - this.columns, ArrowDown: present + this.columns, Home: 0, End: last }[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.pick(Math.max(0, Math.min(last, to)));
  }

  layOut(width) {
    const { length } = this.partitions;
    const most = Math.max(1, Math.floor((width + GAP) / (MIN_WIDTH + GAP)));
    const perTower = this.maxRows ? Math.max(1, Math.ceil(length / (most * this.maxRows))) : 1;
    const count = Math.ceil(length / perTower);
    // Few partitions get one row of wide towers; many get rows of towers of one width.
    const inRow = Math.min(count, Math.max(most > 200 ? 160 : 60, Math.ceil(count / 40)), most);
    this.columns = Math.max(1, this.maxRows === 1 ? Math.min(count, most) : inRow);
    this.pitch = Math.min(MAX_WIDTH + GAP, (width + GAP) / this.columns);
    this.rowCount = Math.max(1, Math.ceil(count / this.columns));
    this.towers = Array.from({ length: count }, (_, at) => this.tower(at * perTower, Math.min(length, (at + 1) * perTower)));
  }

  tower(first, end) {
    const tower = { first, end, runs: [], unindexed: 0, garbage: 0, entries: 0, bytes: 0 };
    for (const partition of this.partitions.slice(first, end)) {
      const sizes = bytesOf(partition);
      tower.runs.push(...partition.runs.map((run) => run.bytes));
      tower.unindexed += sizes.unindexed;
      tower.bytes += sizes.runs + sizes.unindexed;
      tower.garbage += partition.garbage;
      tower.entries += partition.runs.reduce((sum, run) => sum + run.entries, 0);
    }
    return tower;
  }

  draw() {
    const width = Math.floor(this.node.clientWidth);
    if (!width) return;
    this.layOut(width);
    const ratio = devicePixelRatio || 1;
    const pitchY = this.rowHeight + LABEL + 4;
    const height = this.rowCount * pitchY;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.height = `${height}px`;
    }
    const to = this.canvas.getContext("2d");
    to.setTransform(ratio, 0, 0, ratio, 0, 0);
    to.clearRect(0, 0, width, height);
    const colours = Object.fromEntries(["teal", "ochre", "line", "muted", "ink", "paper"].map((name) => [name, colour(name)]));
    const largest = Math.max(1, ...this.towers.map((tower) => tower.bytes));
    this.towers.forEach((tower, at) => this.drawTower(to, tower, at, largest, colours, pitchY));
    this.drawLabels(to, colours, pitchY, width);
    this.canvas.setAttribute("aria-label", this.summary());
    this.showReading();
  }

  drawTower(to, tower, at, largest, colours, pitchY) {
    const x = (at % this.columns) * this.pitch;
    const ground = Math.floor(at / this.columns) * pitchY + this.rowHeight;
    const width = Math.max(1, this.pitch - GAP);
    const scale = (this.rowHeight - 4) / largest;
    let y = ground;
    to.fillStyle = colours.line;
    to.fillRect(x, ground, width, 1);
    const inView = tower.bytes - tower.unindexed;
    const runs = tower.runs.length > 24 || tower.end - tower.first > 1 ? [inView] : tower.runs.toSorted((a, b) => b - a);
    for (const size of runs) {
      const high = Math.max(size > 0 ? 1 : 0, size * scale);
      to.fillStyle = colours.teal;
      to.fillRect(x, y - high, width, Math.max(0.7, high - (runs.length > 1 ? 0.8 : 0)));
      y -= high;
    }
    if (tower.garbage > 0 && tower.entries > 0) this.hatch(to, x, ground, width, (ground - y) * Math.min(1, tower.garbage / tower.entries), colours.paper);
    if (tower.unindexed > 0) {
      const high = Math.max(2, tower.unindexed * scale);
      to.fillStyle = colours.ochre;
      to.fillRect(x, y - high - 1, width, high);
      y -= high + 1;
    }
    const isChosen = this.chosen !== null && this.chosen >= tower.first && this.chosen < tower.end;
    if (isChosen || at === this.pointed) {
      to.strokeStyle = colours.ink;
      to.lineWidth = isChosen ? 2 : 1;
      to.strokeRect(x - 0.5, ground - this.rowHeight + 1, width + 1, this.rowHeight);
    }
  }

  hatch(to, x, ground, width, height, ink) {
    to.save();
    to.beginPath();
    to.rect(x, ground - height, width, height);
    to.clip();
    to.strokeStyle = ink;
    to.lineWidth = 1;
    to.beginPath();
    for (let y = ground - height - width; y < ground + width; y += 3) {
      to.moveTo(x, y + width);
      to.lineTo(x + width, y);
    }
    to.stroke();
    to.restore();
  }

  /** Names the tree where its first partition is, as far as there is room. */
  drawLabels(to, colours, pitchY, width) {
    to.fillStyle = colours.muted;
    to.font = "11px system-ui, sans-serif";
    let before;
    let free = 0;
    this.towers.forEach((tower, at) => {
      const partition = this.partitions[tower.first];
      const column = at % this.columns;
      if (column === 0) free = 0;
      const name = treeOf(partition);
      if (name === before && column !== 0) return;
      before = name;
      const x = column * this.pitch;
      if (x < free || !name) return;
      const text = name.length > 24 ? `${name.slice(0, 23)}…` : name;
      const wide = to.measureText(text).width;
      if (x + wide > width) return;
      to.fillText(text, x, Math.floor(at / this.columns) * pitchY + this.rowHeight + LABEL - 1);
      free = x + wide + 8;
    });
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.pitch);
    const row = Math.floor((event.clientY - box.top) / (this.rowHeight + LABEL + 4));
    const at = row * this.columns + column;
    this.show(column < this.columns && at < this.towers.length ? at : null);
  }

  show(at) {
    if (at === this.pointed) return;
    this.pointed = at;
    this.draw();
  }

  showReading() {
    const at = this.pointed ?? null;
    const tower = at === null ? null : this.towers[at];
    setText(this.reading, tower ? describe(this.partitions, tower) : "");
  }

  summary() {
    const { partitions } = this;
    if (!partitions.length) return "No partitions yet: all data is in the log and in memory.";
    const unindexed = partitions.filter((partition) => partition.unindexed.length).length;
    const all = partitions.reduce((sum, partition) => sum + bytesOf(partition).runs + bytesOf(partition).unindexed, 0);
    return `Map of ${counted(partitions.length, "partition")}, ${bytes(all)}; ${whole(unindexed)} with unindexed runs. The table below has the figures.`;
  }
}

function describe(partitions, tower) {
  const count = tower.end - tower.first;
  const name = count > 1 ? `partitions ${tower.first + 1} to ${tower.end}` : `partition ${tower.first + 1}`;
  const parts = [`${name} from ${firstKey(partitions[tower.first]).slice(0, 60)}`, bytes(tower.bytes), counted(tower.runs.length, "run")];
  if (tower.unindexed) parts.push(`${bytes(tower.unindexed)} unindexed`);
  if (tower.garbage) parts.push(`${percent(tower.garbage, tower.entries)} garbage`);
  return parts.join(" · ");
}
