#!/usr/bin/env python3
"""Simulates losses of nodes that run Kafka Streams with BraidDB, and the restores that follow.

usage: simulate_restores.py [--seed N] [--svg FILE] [NAME=VALUE...]   prints the tables of docs/guide/scale.md
       simulate_restores.py --check                                   checks the arithmetic, in seconds

NAME is a field of `Inputs`. Model:
- A lost node is noticed after `detection_s`. Its store partitions go to other nodes in turn; if all
  nodes are lost, each node begins again with its own.
- A node installs the checkpoints of its new partitions, then restores the changelog after them. It
  works on one loss at a time, also if it is lost meanwhile. All its partitions are ready at the end of the restore.
- Installations share the object store, restores share the brokers: each takes the lowest of its own
  rate, the node's network and an equal share of the source.
- A partition publishes each `interval_s`; its next owner goes on at a random time of the interval.
- The changelog has each key once, and `changelog_excess` times that in old values.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
import random
import sys

DAY = 86_400.0


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Rates are per second, sizes in bytes. BootstrapBench.java measured the last group; its rates are of
    processor time, without network and consumer. `record_bytes` is the size of a row in the changelog."""

    nodes: int = 1000
    partitions: int = 100_000
    keys: float = 1e6
    changes: float = 100.0
    interval_s: float = 600.0
    node_bandwidth: float = 1.25e9
    object_store_bandwidth: float = 50e9
    broker_bandwidth: float = 20e9
    losses_per_node_day: float = 1 / 30
    detection_s: float = 45.0
    changelog_excess: float = 0.5
    restore_cores: float = 2.0
    record_bytes: float = 130.0

    stored_row_bytes: float = 84.7
    changelog_rows_per_core: float = 763e3
    install_bytes_per_core: float = 212e6
    upload_bytes_base: float = 3e3
    upload_bytes_per_change: float = 301.0

    def checkpoint_bytes(self) -> float:
        return self.keys * self.stored_row_bytes

    def upload_bytes(self) -> float:
        """Bytes that one publication uploads: never more than a whole checkpoint."""
        changed = self.changes * self.interval_s
        return min(self.upload_bytes_base + changed * self.upload_bytes_per_change, self.checkpoint_bytes())

    def upload_rate(self) -> float:
        return self.partitions * self.upload_bytes() / self.interval_s

    def install_rate(self) -> float:
        return min(self.node_bandwidth, self.install_bytes_per_core * self.restore_cores)

    def replay_rate(self) -> float:
        """Bytes of changelog a second that a node restores alone."""
        return min(self.node_bandwidth, self.changelog_rows_per_core * self.restore_cores * self.record_bytes)

    def full_records(self) -> float:
        return self.keys * (1 + self.changelog_excess)


class Source:
    """Jobs that share a bandwidth equally, each limited by `rate`. `done` grows by the rate of one job."""

    def __init__(self, bandwidth: float, rate: float) -> None:
        self.bandwidth, self.rate = bandwidth, rate
        self.now = self.done = self.moved = self.peak = 0.0
        self.jobs: list[tuple[float, int, object]] = []
        self.count = 0

    def share(self) -> float:
        return min(self.rate, self.bandwidth / len(self.jobs))

    def advance(self, now: float) -> None:
        if self.jobs:
            step = self.share() * (now - self.now)
            self.done += step
            self.moved += step * len(self.jobs)
            self.peak = max(self.peak, self.share() * len(self.jobs))
        self.now = now

    def add(self, now: float, size: float, job: object) -> None:
        self.advance(now)
        self.count += 1
        heapq.heappush(self.jobs, (self.done + size, self.count, job))

    def next_end(self) -> float:
        return self.now + max(0.0, self.jobs[0][0] - self.done) / self.share() if self.jobs else math.inf

    def pop(self, now: float) -> object:
        self.advance(now)
        return heapq.heappop(self.jobs)[2]


@dataclasses.dataclass
class Job:
    """The partitions that one node got after one loss."""

    node: int
    lost_at: float
    partitions: list[int]
    records: float = 0.0


@dataclasses.dataclass
class Outcome:
    waits: list[tuple[float, int]]
    installed: Source
    replayed: Source
    losses: int

    def wait(self, share: float) -> float:
        """The time in which this share of the lost partitions was ready."""
        left = share * sum(count for _, count in self.waits)
        for wait, count in sorted(self.waits):
            left -= count
            if left <= 1e-9:
                return wait
        return self.waits[-1][0]


def single_losses(inputs: Inputs, days: float, rng: random.Random) -> list[tuple[float, list[int]]]:
    losses, now = [], 0.0
    while True:
        now += rng.expovariate(inputs.nodes * inputs.losses_per_node_day / DAY)
        if now > days * DAY:
            return losses
        losses.append((now, [rng.randrange(inputs.nodes)]))


def simulate(
    inputs: Inputs, losses: list[tuple[float, list[int]]], has_checkpoints: bool, rng: random.Random
) -> Outcome:
    """Nodes of `losses` lose their disks at these times, and are back with empty ones after that."""
    owned: list[list[int]] = [[] for _ in range(inputs.nodes)]
    for partition in range(inputs.partitions):
        owned[partition % inputs.nodes].append(partition)
    # Each publishes at these times and each interval later.
    first = [rng.uniform(-inputs.interval_s, 0) for _ in range(inputs.partitions)]
    # Loads are installed, then replayed.
    install = Source(inputs.object_store_bandwidth, inputs.install_rate())
    replay = Source(inputs.broker_bandwidth, inputs.replay_rate())
    queues: list[list[Job]] = [[] for _ in range(inputs.nodes)]
    waits: list[tuple[float, int]] = []
    at = rng.randrange(inputs.nodes)
    pending = sorted(losses)
    index = 0

    def begin(now: float, job: Job) -> None:
        count = len(job.partitions)
        if has_checkpoints:
            # Nothing is written while the partition waits.
            ages = ((job.lost_at - first[p]) % inputs.interval_s if job.lost_at > first[p] else
                    job.lost_at - first[p] + inputs.interval_s for p in job.partitions)
            job.records = inputs.changes * sum(ages)
            install.add(now, count * inputs.checkpoint_bytes(), job)
        else:
            job.records = count * inputs.full_records()
            replay.add(now, job.records * inputs.record_bytes, job)

    def end(now: float, job: Job) -> None:
        waits.append((now - job.lost_at, len(job.partitions)))
        owned[job.node].extend(job.partitions)
        for partition in job.partitions:
            first[partition] = now + rng.uniform(0, inputs.interval_s)
        queue = queues[job.node]
        queue.pop(0)
        if queue:
            begin(now, queue[0])

    while True:
        loss_at = pending[index][0] + inputs.detection_s if index < len(pending) else math.inf
        now = min(loss_at, install.next_end(), replay.next_end())
        if now == math.inf:
            return Outcome(waits, install, replay, len(losses))
        if now == loss_at:
            lost_at, nodes = pending[index]
            index += 1
            gone = set(nodes)
            for partition in [p for node in nodes for p in owned[node]]:
                if len(gone) == inputs.nodes:
                    taker = partition % inputs.nodes
                else:
                    at = (at + 1) % inputs.nodes
                    while at in gone:
                        at = (at + 1) % inputs.nodes
                    taker = at
                queue = queues[taker]
                if queue and queue[-1].lost_at == lost_at:
                    queue[-1].partitions.append(partition)
                else:
                    queue.append(Job(taker, lost_at, [partition]))
            for node in nodes:
                owned[node].clear()
            for queue in queues:
                if len(queue) == 1 and queue[0].lost_at == lost_at:
                    begin(now, queue[0])
        elif now == install.next_end():
            job = install.pop(now)
            replay.add(now, job.records * inputs.record_bytes, job)
        else:
            end(now, replay.pop(now))


def closed_form(inputs: Inputs, nodes_restoring: int, per_node: int, has_checkpoints: bool, age_s: float) -> float:
    """The wait if `nodes_restoring` nodes begin at once with `per_node` partitions of the same age."""
    replay = min(inputs.replay_rate(), inputs.broker_bandwidth / nodes_restoring)
    if not has_checkpoints:
        return inputs.detection_s + per_node * inputs.full_records() * inputs.record_bytes / replay
    install = min(inputs.install_rate(), inputs.object_store_bandwidth / nodes_restoring)
    tail = inputs.changes * age_s * inputs.record_bytes
    return inputs.detection_s + per_node * (inputs.checkpoint_bytes() / install + tail / replay)


def near(found: float, expected: float, tolerance: float = 1e-6) -> None:
    if not math.isclose(found, expected, rel_tol=tolerance):
        raise AssertionError(f"{found} is not {expected}")


def check() -> None:
    base = dataclasses.replace(
        Inputs(), nodes=10, partitions=100, stored_row_bytes=80.0, changelog_rows_per_core=1e5,
        install_bytes_per_core=1e8, upload_bytes_base=1e5, upload_bytes_per_change=400.0)
    # 1e6 keys: 80 MB of checkpoint, 1.5e6 records of 130 bytes.
    near(base.checkpoint_bytes(), 80e6)
    near(base.install_rate(), 200e6)
    near(base.replay_rate(), 26e6)
    near(base.upload_bytes(), 24.1e6)
    near(dataclasses.replace(base, interval_s=6e5).upload_bytes(), 80e6)
    near(base.upload_rate(), 100 * 24.1e6 / 600)

    # One loss: nine other nodes get ten partitions, so one gets two.
    lost = simulate(base, [(1000.0, [3])], False, random.Random(1))
    near(sum(count for _, count in lost.waits), 10)
    near(lost.wait(0.5), 45 + 1.5e6 * 130 / 26e6)
    near(lost.wait(1.0), 45 + 2 * 1.5e6 * 130 / 26e6)
    near(lost.wait(1.0), closed_form(base, 9, 2, False, 0))
    near(lost.replayed.moved, 10 * 1.5e6 * 130)

    # All disks are lost, and the brokers are the limit: all bytes over their bandwidth.
    slow = dataclasses.replace(base, broker_bandwidth=50e6, object_store_bandwidth=500e6)
    everything = [(1000.0, list(range(10)))]
    lost = simulate(slow, everything, False, random.Random(1))
    near(lost.wait(1.0), 45 + 100 * 1.5e6 * 130 / 50e6)
    near(lost.replayed.peak, 50e6)
    near(lost.wait(1.0), closed_form(slow, 10, 10, False, 0))

    # Checkpoints without changes: nothing is replayed, and the object store is the limit.
    still = dataclasses.replace(slow, changes=0.0)
    lost = simulate(still, everything, True, random.Random(1))
    near(lost.wait(0.5), 45 + 100 * 80e6 / 500e6)
    near(lost.installed.moved, 100 * 80e6)
    assert lost.replayed.moved == 0.0

    # The ages of checkpoints are uniform in an interval: the replayed records average half of it.
    many = dataclasses.replace(base, partitions=20_000, interval_s=600.0)
    lost = simulate(many, everything, True, random.Random(1))
    near(lost.replayed.moved, 20_000 * 100 * 300 * 130, 0.02)
    near(lost.installed.moved, 20_000 * 80e6)

    # A second loss waits for the work of the first: no rate is shared within a node.
    twice = simulate(dataclasses.replace(base, nodes=2, partitions=2), [(1000.0, [0]), (1001.0, [0])], False,
                     random.Random(1))
    near(twice.wait(1.0), 45 + 1.5e6 * 130 / 26e6)
    near(sum(count for _, count in twice.waits), 1)

    # A seed repeats its losses; another one has others, at the rate of the inputs.
    losses = single_losses(Inputs(), 300, random.Random(5))
    assert losses == single_losses(Inputs(), 300, random.Random(5)) != single_losses(Inputs(), 300, random.Random(6))
    near(len(losses), 1000 / 30 * 300, 0.05)
    print("simulate_restores.py: the arithmetic is right")


SCENARIOS = ("a node at a time, 30 days", "a third of the nodes at once", "all disks at once")
SIZES = (1e5, 3e5, 1e6, 3e6, 1e7)


def outcome(inputs: Inputs, scenario: str, has_checkpoints: bool, seed: int) -> Outcome:
    rng = random.Random(seed)
    if scenario == SCENARIOS[0]:
        losses = single_losses(inputs, 30, rng)
    else:
        count = inputs.nodes // 3 if scenario == SCENARIOS[1] else inputs.nodes
        losses = [(rng.uniform(0, DAY), rng.sample(range(inputs.nodes), count))]
    return simulate(inputs, losses, has_checkpoints, rng)


def shown_time(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def shown_bytes(size: float) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:.0f} B"


def print_tables(inputs: Inputs, seed: int) -> dict[str, list[tuple[float, float]]]:
    """Prints the tables, and returns the lines of the plot."""
    print(f"seed {seed}: {inputs}\n")
    print("| keys of a partition | bytes of a checkpoint | upload of each | uploads of all nodes, a second |")
    print("|---|---|---|---|")
    sized = [dataclasses.replace(inputs, keys=keys) for keys in SIZES]
    for one in sized:
        print(f"| {one.keys:,.0f} | {shown_bytes(one.checkpoint_bytes())} | {shown_bytes(one.upload_bytes())} "
              f"| {shown_bytes(one.upload_rate())} |")
    print("\n| lost | keys | restored from | half ready | 99 % ready | all ready | read from checkpoints | read "
          "from changelogs |\n|---|---|---|---|---|---|---|---|")
    lines: dict[str, list[tuple[float, float]]] = {}
    for scenario in SCENARIOS:
        for one in sized:
            for has_checkpoints in (False, True):
                source = "checkpoints" if has_checkpoints else "changelogs"
                found = outcome(one, scenario, has_checkpoints, seed)
                lines.setdefault(f"{scenario}, {source}", []).append((one.keys, found.wait(0.99)))
                print(f"| {scenario} | {one.keys:,.0f} | {source} | {shown_time(found.wait(0.5))} "
                      f"| {shown_time(found.wait(0.99))} | {shown_time(found.wait(1.0))} "
                      f"| {shown_bytes(found.installed.moved)} | {shown_bytes(found.replayed.moved)} |", flush=True)
    return lines


LEFT, TOP, WIDTH, HEIGHT = 70, 60, 620, 320
COLOURS = ("#588157", "#1b6ca8", "#c8553d")


def plot(lines: dict[str, list[tuple[float, float]]]) -> str:
    """Draws both axes logarithmically: dashed from changelogs, solid from checkpoints."""
    low, high = 30.0, max(y for points in lines.values() for _, y in points) * 1.2

    def place(keys: float, seconds: float) -> str:
        x = LEFT + WIDTH * math.log(keys / SIZES[0]) / math.log(SIZES[-1] / SIZES[0])
        return f"{x:.1f},{TOP + HEIGHT * (1 - math.log(max(seconds, low) / low) / math.log(high / low)):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 50} {TOP + HEIGHT + 50}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="10" y="20" font-size="14">Simulated time until 99 % of lost partitions are ready; '
        "dashed: changelogs, solid: checkpoints</text>",
    ]
    at = 10
    for scenario, colour in zip(SCENARIOS, COLOURS):
        parts.append(f'<rect x="{at}" y="33" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{at + 18}" y="43">{scenario}</text>')
        at += 40 + 7 * len(scenario)
    for seconds in (60, 300, 900, 3600, 4 * 3600, 16 * 3600, 64 * 3600):
        if low < seconds < high:
            y = place(SIZES[0], seconds).split(",")[1]
            parts.append(f'<path d="M{LEFT} {y}H{LEFT + WIDTH}" stroke="#ddd"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{float(y) + 4:.1f}" text-anchor="end">'
                         f"{shown_time(seconds).replace('.0', '')}</text>")
    for keys in SIZES:
        x = place(keys, low).split(",")[0]
        parts.append(f'<text x="{x}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{keys:,.0f}</text>')
    parts.append(f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 38}" text-anchor="middle">keys of a partition</text>')
    for name, points in lines.items():
        colour = COLOURS[[name.startswith(scenario) for scenario in SCENARIOS].index(True)]
        dashes = ' stroke-dasharray="6 4"' if name.endswith("changelogs") else ""
        parts.append(f'<polyline points="{" ".join(place(*point) for point in points)}" fill="none" '
                     f'stroke="{colour}" stroke-width="2"{dashes}/>')
    return "\n".join(parts) + "\n</svg>\n"


def main(arguments: list[str]) -> None:
    if arguments == ["--check"]:
        check()
        return
    inputs, seed, svg = Inputs(), 1, None
    while arguments:
        argument = arguments.pop(0)
        if argument == "--seed":
            seed = int(arguments.pop(0))
        elif argument == "--svg":
            svg = arguments.pop(0)
        elif "=" in argument and hasattr(inputs, argument.split("=")[0]):
            name, value = argument.split("=")
            kind = type(getattr(inputs, name))
            inputs = dataclasses.replace(inputs, **{name: kind(value)})
        else:
            sys.exit(__doc__)
    lines = print_tables(inputs, seed)
    if svg is not None:
        with open(svg, "w", encoding="utf-8") as file:
            file.write(plot(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
