// What is wrong, and what slows the database: conclusions from the statistics, worst first.

import { ownReads } from "./api.js";
import { causeName } from "./commits.js";
import { bytes, clock, counted, duration, percent, short, whole } from "./format.js";

/** Time for which a failed request is a reason for the verdict. The charts show as much. */
const RECENT_US = 600e6;
/** Minimum cache misses a second that deserve a remark. */
const MISSES_MIN = 200;
/** Time that the verdict looks back, and between two samples. */
const WINDOW_S = 20;
const SAMPLE_S = 2;

/**
 * Returns findings `{level, title, text, link}`. Levels: `bad` (damage, no writes), `slow` (slows
 * work at present), `note` (worth knowing).
 */
export function find({ stats, samples, treesError }) {
  const { engine, server } = stats;
  const found = [];
  const add = (level, title, text, link) => found.push({ level, title, text, link });
  ofFailures(stats, add);
  if (treesError?.status >= 500) add("bad", "The trees cannot be listed", `${treesError.message}.`);
  ofWriters(engine, samples, add);
  ofCommits(stats, add);
  ofReaders(stats, add);
  ofSpace(stats, add);
  ofCache(engine, samples, add);
  if (engine.log_tail_note) {
    add("note", "The log ended early at the last open", `${engine.log_tail_note}. A crash during a write leaves such an end. Commits before it are complete.`);
  }
  if (engine.older_runs > 0) {
    add("note", `${counted(engine.older_runs, "run")} of an older format`, "They are read as always. `braid upgrade` rewrites them.");
  }
  if (server.follower && engine.last_sequence === 0) {
    add("note", "No commit seen yet", "The server follows a database that another process writes.");
  }
  const order = { bad: 0, slow: 1, note: 2 };
  return found.sort((a, b) => order[a.level] - order[b.level]);
}

/** The latest failed request often knows more than the counters: a damaged block, a full disk. */
function ofRequests({ server: { last_failure: failure, responses }, time_us: now }, add) {
  if (!failure) return;
  const count = responses["5xx"] > 1 ? ` ${whole(responses["5xx"])} requests failed since the start.` : "";
  const isDamage = failure.title === "Database damaged";
  const isRecent = failure.time_us > now - RECENT_US;
  add(!isRecent ? "note" : isDamage ? "bad" : "slow", isDamage ? "A request met damage" : `A request failed: ${failure.title.toLowerCase()}`, `At ${clock(failure.time_us)}: ${failure.detail}.${count}`);
}

function ofFailures(stats, add) {
  const { engine, server, events, damaged_partitions: damaged } = stats;
  if (engine.failure) {
    add("bad", "The database takes no writes", `${engine.failure}. Mend the cause, then open the database again.`);
  } else if (server.not_ready) {
    add("bad", "The database takes no requests", `${server.not_ready}.`);
  }
  if (damaged.length) {
    add("bad", `${counted(damaged.length, "damaged partition")}`, `${damaged.join(" · ")}. Reads of intact blocks go on; these partitions are not merged. \`braid verify\` finds every damaged block, \`braid salvage\` and backups bring data back.`, "#/partitions");
  }
  if (engine.scrub_damaged_units > 0) {
    add("bad", `The scrubber found ${counted(engine.scrub_damaged_units, "damaged unit")}`, "`braid verify` reports files and offsets.");
  }
  ofRequests(stats, add);
  if (engine.background_errors > 0) {
    add("slow", `${counted(engine.background_errors, "background job")} failed`, `Flushes or merges failed and are tried again. ${events?.findLast(({ kind }) => kind === "background_error")?.text ?? "The process's log has the reason: often a full or failing disk"}.`);
  }
  if (engine.disk_reserve_bytes < engine.disk_reserve_bytes_whole) {
    add("bad", "The disk is full", `Only deletes are accepted: ${bytes(engine.disk_reserve_bytes)} of the reserve of ${bytes(engine.disk_reserve_bytes_whole)} are left. Free space on the device.`);
  }
}

function ofWriters(engine, samples, add) {
  const throttled = samples.recent("throttled_us");
  const stalls = samples.recent("stalls");
  if (throttled.change > 0 && throttled.seconds > 0) {
    const share = percent(throttled.change / 1e6, throttled.seconds);
    add("slow", `Writers are throttled: ${share} of the last minute`, `They write faster than flushes and merges follow: backpressure is ${whole(engine.pressure_per_mille)} of 1000, and throttles from 500 on. A faster disk, more memory (--memory) or fewer small overwrites help.`, "#/partitions");
  }
  if (stalls.change > 0) {
    add("slow", `Writers waited for a flush ${whole(stalls.change)} times in the last minute`, `The longest wait since the start was ${duration(engine.stall_us_max)}. Memtables of ${bytes(engine.memtable_bytes_max)} fill faster than the disk takes them.`);
  }
  if (engine.frozen_memtables > 1) {
    add("slow", `${counted(engine.frozen_memtables, "memtable")} await their flush`, "The disk is slower than the writers.");
  }
  const conflicts = samples.recent("conflicts");
  const commits = samples.recent("last_sequence");
  if (conflicts.change > 20 && conflicts.change > commits.change / 10) {
    add("slow", `${whole(conflicts.change)} transactions conflicted in the last minute`, "Transactions change the same records at the same time and are repeated. Merge functions (`add`, `max`) never conflict.");
  }
  if (engine.rate_limit_bytes_per_second > 0 && engine.pressure_per_mille >= 500) {
    add("slow", "The limit of background writes holds back merges", `It is ${bytes(engine.rate_limit_bytes_per_second)}/s.`);
  }
}

/** The commits of the last minute that took long, by their most frequent cause. */
function ofCommits({ slow_commits: slow, time_us: now }, add) {
  const recent = (slow ?? []).filter((commit) => commit.time_us > now - 60e6);
  if (!recent.length) return;
  const counts = new Map();
  for (const { cause } of recent) counts.set(cause, (counts.get(cause) ?? 0) + 1);
  const [[cause, count]] = [...counts].sort((a, b) => b[1] - a[1]);
  const longest = Math.max(...recent.map((commit) => commit.took_us));
  add("slow", `${counted(recent.length, "slow commit")} in the last minute`, `The longest took ${duration(longest)}. The main cause of ${whole(count)}: ${causeName(cause)}.`, "#/commits");
}

function ofReaders({ engine, readers }, add) {
  // Without later commits, a reader holds nothing back.
  const pinning = readers.filter((reader) => !reader.is_expired && reader.commits_behind > 0);
  if (pinning.length) {
    const oldest = pinning.reduce((a, b) => (a.age_us > b.age_us ? a : b));
    add(engine.dead_entries_held > 0 ? "slow" : "note", `${counted(pinning.length, "reader")} open for long`, `A ${oldest.kind} has been open for ${duration(oldest.age_us)}, ${counted(oldest.commits_behind, "commit")} behind. Old versions of records stay on disk and in scans: ${whole(engine.dead_entries_held)} garbage entries are kept for readers.`);
  }
}

function ofSpace({ engine, partitions }, add) {
  if (partitions.entries > 10_000 && partitions.garbage > partitions.entries / 4) {
    add("slow", `${percent(partitions.garbage, partitions.entries)} of the entries are garbage`, "Scans step over them until merges drop them. `braid compact` drops them now.", "#/partitions");
  }
  if (partitions.count > 0 && partitions.unindexed_runs > 4 * partitions.count) {
    add("slow", `${short(partitions.unindexed_runs / partitions.count)} unindexed runs per partition`, "Each read looks into all of them until a fold puts them into the view.", "#/partitions");
  }
  if (engine.open_files_max > 0 && engine.file_reopenings > 1000) {
    add("note", `Files were reopened ${short(engine.file_reopenings)} times`, `At most ${whole(engine.open_files_max)} stay open. A higher limit of descriptors (ulimit -n) saves these calls.`);
  }
}

function ofCache(engine, samples, add) {
  const misses = samples.recent("cache_misses");
  const hits = samples.recent("cache_hits");
  if (misses.seconds > 0 && misses.change / misses.seconds > MISSES_MIN && misses.change > hits.change / 4) {
    add("slow", `${percent(misses.change, misses.change + hits.change)} of the block reads miss the cache`, `${short(misses.change / misses.seconds)} blocks a second come from the disk. The cache has ${bytes(engine.cache_bytes)}: more memory (--memory) keeps more of them.`);
  }
}

/** Returns the verdict: a level and a short sentence. */
export function verdict(stats, samples, findings) {
  if (findings.some((finding) => finding.level === "bad")) return { level: "bad", text: "Needs attention." };
  const commits = samples.recent("last_sequence", WINDOW_S);
  // Records that this page shows are no work of others, and neither are the blocks read for them.
  // A slow server takes samples rarely: the last one may be old.
  const reads = samples.recent("reads", WINDOW_S);
  const own = ownReads((stats.time_us - samples.last()) / 1e6 + reads.seconds + SAMPLE_S);
  const isRead = reads.change > own;
  // Programs that embed the server read without requests.
  const blocks = own > 0 ? 0 : samples.recent("cache_hits", WINDOW_S).change + samples.recent("cache_misses", WINDOW_S).change;
  const isSlow = findings.some((finding) => finding.level === "slow");
  // Merges are counted at their ends, and look blocks up.
  const isMerging = samples.recent("merges", WINDOW_S).change > 0 || (stats.running ?? []).some(({ work }) => work !== "flush");
  const work = commits.change > 0 ? "writing" : isRead ? "reading" : isMerging ? "merging" : blocks > 0 ? "reading" : "idle";
  if (isSlow) return { level: "slow", text: work === "idle" ? "Idle, with remarks." : `Held back while ${work}.` };
  return { level: "good", text: work === "idle" ? "Healthy and idle." : `Healthy, ${work}.` };
}
