// Small charts of the last ten minutes, drawn as SVG. All charts of a group share one reading mark:
// the time under the pointer, or the one chosen with the arrow keys.

import { h, s, setText } from "./dom.js";
import { clock } from "./format.js";

const WIDTH = 300;
const HEIGHT = 64;
/** Charts span the history, at least this time. */
const SPAN_MIN_US = 120e6;

/** Returns a round number that is not below the value. */
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((factor) => factor * power >= value * 0.999) * power;
}

/** Returns the top of sizes: a power of two with one step between, so that it reads well. */
export function ceilingOfBytes(value) {
  if (!(value > 0)) return 1;
  const power = 2 ** Math.floor(Math.log2(value));
  return [1, 1.5, 2].find((factor) => factor * power >= value * 0.999) * power;
}

/** A group of charts with one reading mark. */
export class Charts {
  constructor(label) {
    this.charts = [];
    this.mark = null;
    this.node = h("div", { class: "charts", role: "group", "aria-label": label, tabindex: "0" });
    this.node.addEventListener("pointerleave", () => this.read(null));
    this.node.addEventListener("blur", () => this.read(null));
    this.node.addEventListener("keydown", (event) => this.onKey(event));
  }

  /**
   * Adds a chart. `lines` returns `[{name, colour, points, isArea}]`; areas are stacked in their
   * order. `show` formats values.
   */
  add(options) {
    const chart = new Chart(this, options);
    this.charts.push(chart);
    this.node.append(chart.node);
    return chart;
  }

  update(samples) {
    this.samples = samples;
    for (const chart of this.charts) chart.draw(samples);
  }

  /** Marks a time in all charts; `null` shows the latest values again. */
  read(time) {
    this.mark = time;
    for (const chart of this.charts) chart.drawMark();
  }

  onKey(event) {
    const times = this.samples?.rows.map((row) => row.time_us) ?? [];
    if (!times.length || !["ArrowLeft", "ArrowRight", "Home", "End", "Escape"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "Escape") return void this.read(null);
    const present = this.mark === null ? times.length - 1 : nearest(times, this.mark);
    const at = { ArrowLeft: present - 1, ArrowRight: present + 1, Home: 0, End: times.length - 1 }[event.key];
    this.read(times[Math.max(0, Math.min(times.length - 1, at))]);
  }
}

function nearest(times, time) {
  let best = 0;
  for (let at = 1; at < times.length; at += 1) {
    if (Math.abs(times[at] - time) < Math.abs(times[best] - time)) best = at;
  }
  return best;
}

class Chart {
  constructor(group, { title, help, lines, show, top, max, threshold }) {
    Object.assign(this, { group, title, lines, show, top: top ?? ceiling, max, threshold, drawn: [] });
    this.value = h("span", { class: "now" });
    this.legend = h("span", { class: "legend" });
    this.upper = h("span", { class: "upper" });
    this.shapes = s("g");
    this.line = s("line", { class: "mark", y1: 0, y2: HEIGHT, visibility: "hidden" });
    const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, this.shapes, this.line);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      if (this.end) group.read(this.end - this.span * (1 - (event.clientX - box.left) / box.width));
    });
    this.summary = h("p", { class: "unseen" });
    this.node = h("figure", { class: "chart", title: help },
      h("figcaption", {}, h("span", { class: "title" }, title), this.value),
      h("div", { class: "plot" }, svg, this.upper), this.legend, this.summary);
  }

  draw(samples) {
    this.end = samples.last();
    this.span = Math.max(SPAN_MIN_US, this.end - (samples.rows[0]?.time_us ?? this.end));
    this.drawn = this.lines(samples);
    const areas = stack(this.drawn.filter((line) => line.isArea));
    const strokes = this.drawn.filter((line) => !line.isArea).map((line) => ({ ...line, tops: line.points }));
    const all = [...areas, ...strokes].flatMap((line) => line.tops.map(([, value]) => value ?? 0));
    const top = this.max ?? this.top(Math.max(0, ...all));
    setText(this.upper, this.show(top));
    const y = (value) => HEIGHT - 1 - ((HEIGHT - 3) * Math.min(value, top)) / top;
    const x = (time) => (WIDTH * (time - this.end + this.span)) / this.span;
    const shapes = [s("line", { class: "base", x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1 })];
    if (this.threshold) shapes.push(s("line", { class: "threshold", x1: 0, x2: WIDTH, y1: y(this.threshold), y2: y(this.threshold) }));
    for (const area of areas) shapes.push(s("path", { class: `area ${area.colour}`, d: areaPath(area, x, y) }));
    for (const line of strokes) {
      if (strokes.length === 1 && !areas.length) {
        const bottoms = line.points.map(([time]) => [time, 0]);
        shapes.push(s("path", { class: `under ${line.colour}`, d: areaPath({ tops: line.points, bottoms }, x, y) }));
      }
      shapes.push(s("path", { class: `stroke ${line.colour}`, d: linePath(line.points, x, y) }));
    }
    this.shapes.replaceChildren(...shapes);
    this.drawMark();
    const times = this.drawn[0]?.points.map(([time]) => time) ?? [];
    const sums = times.map((_, at) => sumOf(this.drawn.map((line) => line.points[at][1]))).filter((sum) => sum !== null);
    const range = sums.length ? `${this.show(Math.min(...sums))} to ${this.show(Math.max(...sums))}` : "no samples yet";
    setText(this.summary, `${this.title}: ${this.show(sums.at(-1) ?? null)} now, ${range} in the last ten minutes.`);
  }

  /** Shows the values at the mark, or the latest ones. */
  drawMark() {
    const { mark } = this.group;
    const at = (points) => {
      if (!points.length) return null;
      return points[mark === null ? points.length - 1 : nearest(points.map(([time]) => time), mark)][1];
    };
    const values = this.drawn.map((line) => ({ ...line, value: at(line.points) }));
    setText(this.value, this.show(sumOf(values.map((line) => line.value))));
    if (values.length > 1) {
      this.legend.replaceChildren(...values.map((line) =>
        h("span", {}, h("i", { class: line.colour }), `${line.name} ${this.show(line.value ?? null)}`)));
    }
    const isMarked = mark !== null && this.end;
    this.line.setAttribute("visibility", isMarked ? "visible" : "hidden");
    if (isMarked) {
      const x = (WIDTH * (mark - this.end + this.span)) / this.span;
      this.line.setAttribute("x1", x);
      this.line.setAttribute("x2", x);
    }
    this.node.dataset.time = isMarked ? clock(mark) : "";
  }
}

/** Returns the sum of the known values; `null` without any. */
function sumOf(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) : null;
}

function stack(areas) {
  const sums = new Map();
  return areas.map((area) => {
    const bottoms = area.points.map(([time]) => [time, sums.get(time) ?? 0]);
    const tops = area.points.map(([time, value], at) => [time, bottoms[at][1] + (value ?? 0)]);
    for (const [time, value] of tops) sums.set(time, value);
    return { ...area, tops, bottoms };
  });
}

function linePath(points, x, y) {
  let path = "";
  let isDown = false;
  for (const [time, value] of points) {
    if (value === null) isDown = false;
    else {
      path += `${isDown ? "L" : "M"}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
      isDown = true;
    }
  }
  return path;
}

function areaPath({ tops, bottoms }, x, y) {
  if (tops.length < 2) return "";
  const there = tops.map(([time, value]) => `${x(time).toFixed(1)} ${y(value ?? 0).toFixed(1)}`);
  const back = bottoms.toReversed().map(([time, value]) => `${x(time).toFixed(1)} ${y(value).toFixed(1)}`);
  return `M${there.join("L")}L${back.join("L")}Z`;
}

/** Returns a horizontal bar of parts `[{name, value, colour}]` with its legend. */
export function bar(parts, show, label) {
  const sum = parts.reduce((all, part) => all + part.value, 0);
  const shown = parts.filter((part) => part.value > 0);
  let x = 0;
  const blocks = shown.map((part) => {
    const width = (WIDTH * part.value) / sum;
    x += width;
    return s("rect", { class: `fill ${part.colour}`, x: x - width, y: 0, width: Math.max(0.6, width - 0.6), height: 10 });
  });
  return h("div", { class: "bar", role: "img", "aria-label": `${label}: ${shown.map((part) => `${part.name} ${show(part.value)}`).join(", ") || "none"}` },
    s("svg", { viewBox: `0 0 ${WIDTH} 10`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...blocks),
    h("span", { class: "legend" }, parts.map((part) => h("span", {}, h("i", { class: part.colour }), `${part.name} ${show(part.value)}`))));
}
