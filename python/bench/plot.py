"""A plot of ratios, as SVG."""

from __future__ import annotations

import math

COLOURS = {
    "rocksdict": "#d95f02",
    "plyvel": "#7570b3",
    "lmdb": "#1b9e77",
    "sqlite3": "#e7298a",
    "diskcache": "#66a61e",
}
OWN = ("braiddb", "braiddb.Cache")

LEFT, WIDTH, ROW, TOP = 150, 560, 26, 56


def plot(costs: dict[str, dict[str, float]]) -> str:
    """Plot the cost of each other package over that of BraidDB, on a logarithmic scale."""
    ratios = {
        measure: {p: v / next(values[o] for o in OWN if o in values) for p, v in values.items()}
        for measure, values in costs.items()
    }
    all_ratios = [r for values in ratios.values() for p, r in values.items() if p not in OWN]
    low = min(0.5, *all_ratios) / 1.2
    high = max(2.0, *all_ratios) * 1.2

    def x(ratio: float) -> float:
        return LEFT + WIDTH * math.log(ratio / low) / math.log(high / low)

    height = TOP + ROW * len(ratios) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 30} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{LEFT + WIDTH + 30}" height="{height}" fill="white"/>',
        '<text x="10" y="18" font-size="14">Processor time of other packages over that of BraidDB '
        "(right of 1: BraidDB needs less)</text>",
    ]
    at = 10
    for package, colour in COLOURS.items():
        parts.append(f'<circle cx="{at + 4}" cy="34" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{at + 14}" y="38">{package}</text>')
        at += 40 + 7 * len(package)
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= t <= high]
    for tick in ticks:
        colour = "#444" if tick == 1 else "#ddd"
        parts.append(f'<path d="M{x(tick):.1f} {TOP}V{height - 22}" stroke="{colour}"/>')
        parts.append(
            f'<text x="{x(tick):.1f}" y="{height - 8}" text-anchor="middle">{tick:g}</text>'
        )
    for number, (measure, values) in enumerate(ratios.items()):
        y = TOP + ROW * number + ROW / 2
        parts.append(f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{measure}</text>')
        parts.append(f'<path d="M{LEFT} {y}H{LEFT + WIDTH}" stroke="#eee"/>')
        for package, ratio in values.items():
            if package not in OWN:
                colour = COLOURS[package]
                parts.append(
                    f'<circle cx="{x(ratio):.1f}" cy="{y}" r="6" fill="{colour}">'
                    f"<title>{measure}: {ratio:.2f} times {package}</title></circle>"
                )
    return "\n".join([*parts, "</svg>", ""])
