// The recent history: samples of the server, and rates between them.

const WINDOW_US = 600e6;

/** Samples of ten minutes, oldest first. Each has the names of `samples` in GET /stats. */
export class Samples {
  constructor() {
    this.rows = [];
  }

  /** Returns the time of the last sample, for the parameter `since`. */
  last() {
    return this.rows.at(-1)?.time_us ?? 0;
  }

  add({ names, rows }) {
    for (const row of rows) {
      const sample = Object.fromEntries(names.map((name, at) => [name, row[at]]));
      // A clock that was set back begins a new history.
      if (sample.time_us <= this.last()) this.rows = [];
      this.rows.push(sample);
    }
    const oldest = this.last() - WINDOW_US;
    while (this.rows.length && this.rows[0].time_us < oldest) this.rows.shift();
  }

  /** Returns points `[time_us, value]` of a value. */
  values(value) {
    return this.rows.map((row) => [row.time_us, value(row)]);
  }

  /** Returns points `[time_us, change per second]`; `null` where a counter was reset. */
  rates(name) {
    return this.changes((now, before, seconds) => {
      const change = now[name] - before[name];
      return change < 0 ? null : change / seconds;
    });
  }

  /** Returns points of a function of neighbours and the seconds between them. */
  changes(of) {
    const points = [];
    for (let at = 1; at < this.rows.length; at += 1) {
      const [before, now] = [this.rows[at - 1], this.rows[at]];
      points.push([now.time_us, of(now, before, (now.time_us - before.time_us) / 1e6)]);
    }
    return points;
  }

  /** Returns the change of a counter in the last seconds, and the seconds it covers. */
  recent(name, seconds = 60) {
    const now = this.rows.at(-1);
    if (!now) return { change: 0, seconds: 0 };
    const first = this.rows.find((row) => row.time_us >= now.time_us - seconds * 1e6);
    return { change: Math.max(0, now[name] - first[name]), seconds: (now.time_us - first.time_us) / 1e6 };
  }
}

/** Bytes written to files, by destination. */
export const DESTINATIONS = [
  { name: "log", column: "log_bytes", field: "log_bytes_written", colour: "plum" },
  { name: "runs", column: "run_bytes", field: "run_bytes_written", colour: "teal" },
  { name: "views", column: "view_bytes", field: "view_bytes_written", colour: "blue" },
  { name: "blobs", column: "blob_bytes", field: "blob_bytes_written", colour: "ochre" },
  { name: "manifests", column: "manifest_bytes", field: "manifest_bytes_written", colour: "grey" },
];
