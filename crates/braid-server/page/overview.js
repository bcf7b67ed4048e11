// The first look: the verdict, its reasons, the course of the last ten minutes, and where bytes,
// memory and time go.

import { bar, ceilingOfBytes, Charts } from "./charts.js";
import { latestFirst, slowTable } from "./commits.js";
import { h, replaceChanged, replaceIf, setText } from "./dom.js";
import { find, verdict } from "./findings.js";
import { bytes, clock, counted, duration, percent, rate, short, times, whole } from "./format.js";
import { latencyTable } from "./latencies.js";
import { DESTINATIONS } from "./samples.js";
import { Skyline } from "./skyline.js";

export function overview() {
  const headline = h("h1", { class: "verdict" });
  const facts = h("p", { class: "facts" });
  const findings = h("ul", { class: "findings" });
  const charts = addCharts(new Charts("Charts of the last ten minutes; the arrow keys read values"));
  const skyline = new Skyline({ rows: 1 });
  const map = h("section", { class: "map" },
    h("div", { class: "heading" }, h("h2", {}, "Partitions"), h("a", { href: "#/partitions" }, "look closer")), skyline.node);
  const panels = h("div", { class: "panels" });
  const slow = h("section");
  const node = h("div", {}, h("header", { class: "first" }, headline, facts), findings,
    h("section", { "aria-label": "Charts" }, charts.node), map, slow, panels);

  function update(app) {
    const { stats, samples } = app;
    const found = find(app);
    const { level, text } = verdict(stats, samples, found);
    headline.dataset.level = level;
    setText(headline, text);
    setText(facts, factsOf(app));
    replaceIf(findings, JSON.stringify(found), () => found.map(findingItem));
    charts.update(samples);
    map.hidden = !stats.partition_list;
    if (stats.partition_list) skyline.set(stats.partition_list);
    const latest = latestFirst(stats).slice(0, 5);
    replaceIf(slow, JSON.stringify(latest), () => (latest.length
      ? [h("div", { class: "heading" }, h("h2", {}, "Slow commits"), h("a", { href: "#/commits" }, "all")), slowTable(latest)]
      : []));
    replaceChanged(panels, [latency(app), writing(stats), space(stats), memory(stats), readers(stats), background(stats), log(stats), server(stats), ...events(stats)]);
  }
  return { node, update, wantsPartitions: true, leave: () => skyline.leave() };
}

function factsOf({ stats, trees }) {
  const { engine, server, partitions } = stats;
  const parts = [];
  if (trees) {
    if (trees.hasSizes && trees.list.every((tree) => tree.records_estimate !== null)) parts.push(`about ${short(trees.list.reduce((sum, tree) => sum + tree.records_estimate, 0))} records`);
    parts.push(counted(trees.list.length, "tree"));
  }
  parts.push(`${bytes(engine.disk_bytes)} on disk`, `${bytes(engine.memory_bytes)} in memory`, counted(partitions.count, "partition"));
  parts.push(`commit ${whole(engine.last_sequence)}`, `open for ${duration(server.uptime_us)}`);
  return parts.join(" · ");
}

function findingItem({ level, title, text, link }) {
  return h("li", { "data-level": level }, h("strong", {}, title), " ", text, link ? [" ", h("a", { href: link }, "Look")] : null);
}

function addCharts(charts) {
  const perSecond = (value) => (value === null ? "–" : `${rate(value)}/s`);
  const bytesPerSecond = (value) => (value === null ? "–" : `${rate(value, bytes)}/s`);
  const line = (name, colour, points) => ({ name, colour, points });
  charts.add({ title: "Commits", show: perSecond, help: "Commits per second, from the growth of the sequence number",
    lines: (samples) => [line("commits", "teal", samples.rates("last_sequence"))] });
  charts.add({ title: "Requests", show: perSecond, help: "Requests to this server: records read and scans; writes and batches",
    lines: (samples) => [line("reads", "teal", samples.rates("reads")), line("writes", "ochre", samples.rates("writes"))] });
  charts.add({ title: "Written to disk", show: bytesPerSecond, top: ceilingOfBytes, help: "Bytes written to files per second",
    lines: (samples) => DESTINATIONS.slice(0, 4).map(({ name, column, colour }) => ({ ...line(name, colour, samples.rates(column)), isArea: true })) });
  charts.add({ title: "Backpressure", show: (value) => (value === null ? "–" : `${Math.round(value)} %`), max: 100, threshold: 50, help: "Writers are throttled above 50 %",
    lines: (samples) => [line("backpressure", "plum", samples.values((row) => row.pressure_per_mille / 10))] });
  charts.add({ title: "Cache hits", show: (value) => (value === null ? "–" : `${Math.round(value)} %`), max: 100, help: "Share of block reads that the cache answers",
    lines: (samples) => [line("hits", "teal", samples.changes((now, before) => {
      const [hits, misses] = [now.cache_hits - before.cache_hits, now.cache_misses - before.cache_misses];
      return hits + misses > 0 && hits >= 0 ? (100 * hits) / (hits + misses) : null;
    }))] });
  charts.add({ title: "Memory", show: bytes, top: ceilingOfBytes, help: "Memory of the engine, by part",
    lines: (samples) => [["memtables", "ochre", (row) => row.memtable_bytes], ["cache", "teal", (row) => row.cache_bytes],
      ["other", "grey", (row) => Math.max(0, row.memory_bytes - row.memtable_bytes - row.cache_bytes)]]
      .map(([name, colour, value]) => ({ ...line(name, colour, samples.values(value)), isArea: true })) });
  charts.add({ title: "On disk", show: bytes, top: ceilingOfBytes, help: "Bytes of all files of the database",
    lines: (samples) => [line("files", "blue", samples.values((row) => row.disk_bytes))] });
  charts.add({ title: "Unindexed runs", show: short, help: "Runs that are not yet in the view of their partition: each read looks into them",
    lines: (samples) => [line("runs", "ochre", samples.values((row) => row.unindexed_runs))] });
  return charts;
}

function panel(title, ...children) {
  return h("section", { class: "panel" }, h("h2", {}, title), children);
}

/** Returns a list of terms with their values; rows without a value are left out. */
function terms(rows) {
  const shown = rows.filter((row) => row && row[1] !== null && row[1] !== undefined);
  return h("dl", {}, shown.flatMap(([term, value, help]) => [h("dt", { title: help }, term), h("dd", {}, value)]));
}

function latency(app) {
  return panel("Latency of requests", latencyTable(app));
}

function writing({ engine }) {
  const user = engine.user_bytes_written;
  const parts = DESTINATIONS.map(({ name, field, colour }) => ({ name, value: engine[field], colour }));
  const written = parts.reduce((sum, part) => sum + part.value, 0);
  return panel("Writing", bar(parts.slice(0, 4), bytes, "Bytes written"), terms([
    ["write amplification", times(user > 0 ? written / user : null), "Bytes written to files for each byte of keys and values committed, since the open"],
    ["by users", bytes(user)],
    ["commits", whole(engine.commits)],
    ["syncs", engine.syncs && engine.commits ? `${whole(engine.syncs)}, ${short(engine.commits / engine.syncs)} commits each` : whole(engine.syncs)],
    ["conflicts", engine.transaction_conflicts ? `${whole(engine.transaction_conflicts)}, ${whole(engine.transaction_retries)} repeated` : "none"],
  ]));
}

function space({ engine, partitions }) {
  const { run_bytes: runs, view_bytes: views, entries, garbage, raw_bytes: raw } = partitions;
  const reserve = engine.disk_reserve_bytes;
  const other = Math.max(0, engine.disk_bytes - runs - views - reserve);
  const live = entries > 0 ? raw * (1 - garbage / entries) : 0;
  return panel("Space", bar([
    { name: "runs", value: runs, colour: "teal" }, { name: "views", value: views, colour: "blue" },
    { name: "log, blobs, others", value: other, colour: "plum" }, { name: "reserve", value: reserve, colour: "grey" },
  ], bytes, "Bytes on disk"), terms([
    ["space amplification", times(live > 0 ? (runs + views) / live : null), "Bytes of runs and views for each byte of keys and values that are not known garbage. Below 1: compression"],
    ["entries", whole(entries)],
    ["known garbage", garbage ? `${whole(garbage)}, ${percent(garbage, entries)}` : "none"],
    ["expired records dropped", engine.expired || null],
  ]));
}

function memory({ engine }) {
  const { memory_bytes: all, memtable_bytes: memtables, cache_bytes: cache, hash_index_bytes: hashes } = engine;
  const lookups = engine.cache_hits + engine.cache_misses;
  return panel("Memory", bar([
    { name: "memtables", value: memtables, colour: "ochre" }, { name: "cache", value: cache, colour: "teal" },
    { name: "hash indexes", value: hashes, colour: "plum" }, { name: "tables", value: Math.max(0, all - memtables - cache - hashes), colour: "grey" },
  ], bytes, "Memory"), terms([
    ["block reads from the cache", lookups ? percent(engine.cache_hits, lookups) : "none yet", "Since the open"],
    ["a full memtable", bytes(engine.memtable_bytes_max)],
    ["open files", engine.open_files_max ? `${whole(engine.open_files)} of ${whole(engine.open_files_max)}` : whole(engine.open_files)],
    ["reads at once", engine.batch_reads],
    ["direct I/O", engine.direct_io ? "yes" : engine.direct_io_refused ? `refused: ${engine.direct_io_refused}` : "no"],
  ]));
}

function readers({ engine, readers: overstaying }) {
  const rows = overstaying.map((reader) => h("tr", { class: reader.is_expired ? "faint" : null },
    h("td", {}, reader.kind, reader.is_expired ? " (expired)" : ""), h("td", { class: "number" }, duration(reader.age_us)),
    h("td", { class: "number" }, whole(reader.commits_behind)), h("td", { class: "number" }, whole(reader.dead_entries_held))));
  return panel("Readers", terms([
    ["open", whole(engine.snapshots)],
    ["the oldest", engine.oldest_snapshot === null ? "none" : `${duration(engine.oldest_snapshot_age_us)}, at commit ${whole(engine.oldest_snapshot)}`],
    ["behind", engine.oldest_snapshot === null ? null : counted(engine.last_sequence - engine.oldest_snapshot, "commit"), "Commits since the oldest reader began. Old versions of their records are kept"],
    ["garbage kept for readers", engine.dead_entries_held ? counted(engine.dead_entries_held, "entry", "entries") : "none"],
    ["expired", engine.readers_expired || null],
  ]), rows.length ? h("div", { class: "rows" }, h("table", { "aria-label": "Readers open for long" },
    h("thead", {}, h("tr", {}, h("th", {}, "Long reader"), h("th", { class: "number" }, "Age"), h("th", { class: "number" }, "Behind"), h("th", { class: "number" }, "Pins"))), h("tbody", {}, rows))) : null);
}

function background({ engine, partitions, damaged_partitions: damaged }) {
  return panel("Background work", terms([
    ["flushes", `${whole(engine.flushes)}${engine.frozen_memtables ? `, ${whole(engine.frozen_memtables)} waiting` : ""}`],
    ["merges", `${whole(engine.merges)} of runs, ${whole(engine.loose_merges)} of unindexed runs`],
    ["folds into views", whole(engine.folds)],
    ["runs", `${whole(partitions.runs)}, and ${whole(partitions.unindexed_runs)} unindexed`],
    ["throttled", engine.slowed_us ? duration(engine.slowed_us) : "never", "Total time that writers were throttled since the open"],
    ["waits for a flush", engine.stalls ? `${whole(engine.stalls)}, at most ${duration(engine.stall_us_max)}` : "none"],
    ["failed jobs", engine.background_errors || "none"],
    ["damaged partitions", damaged.length || "none"],
    ["views healed", engine.views_healed || null],
    ["scrubbed", engine.scrub_bytes ? `${bytes(engine.scrub_bytes)}, ${counted(engine.scrub_passes, "pass", "passes")}` : null],
  ]));
}

/** The latest notable events; nothing, if there were none. */
function events({ events: noted }) {
  if (!noted?.length) return [];
  const rows = noted.slice(-8).toReversed().map(({ time_us: time, text, count }) =>
    h("li", {}, h("span", { class: "raw" }, clock(time)), " ", text, count > 1 ? h("span", { class: "raw" }, ` (${whole(count)} times)`) : null));
  return [panel("Events", h("ul", { class: "events" }, rows))];
}

/** Returns the latest event of a kind, for a row of terms. */
function latest(noted, kind) {
  const found = noted?.findLast((event) => event.kind === kind);
  return found ? `${clock(found.time_us)}, ${found.text}` : null;
}

function log({ engine, events: noted }) {
  return panel("Log and backups", terms([
    ["written", bytes(engine.log_bytes_written)],
    ["retained beyond recovery", bytes(engine.log_kept_bytes), "For followers, watchers and archives"],
    ["replayed at the open", counted(engine.recovered_records, "record")],
    ["end at the open", engine.log_tail_note ?? "clean"],
    ["manifests", bytes(engine.manifest_bytes_written)],
    ["last backup", noted ? latest(noted, "backup") ?? "none since the open" : null, "Backups made by this process"],
    ["failed backup", latest(noted, "backup_failed")],
    ["archive", latest(noted, "archive_failed")],
  ]));
}

function server({ server: state, time_us: time }) {
  const { responses } = state;
  return panel("This server", terms([
    ["version", state.version],
    ["responses", `${short(responses["2xx"] + responses["3xx"])} good, ${short(responses["4xx"])} refused, ${short(responses["5xx"])} failed`],
    ["kept snapshots", whole(state.kept_snapshots), "For the next pages of scans, up to 60 seconds each"],
    ["uploads", whole(state.uploads)],
    ["reading the statistics", duration(state.reading_us), "One call for all open pages"],
    ["its clock", clock(time)],
  ]));
}
