// Numbers, sizes, times as text. One notation in the whole page.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Returns a number with three significant digits, or whole below 1000. */
function digits(number) {
  if (number >= 99.95 || number === 0) return number.toFixed(0);
  return number.toFixed(number >= 9.995 ? 1 : 2);
}

export function bytes(count) {
  if (count === null || count === undefined) return "–";
  let unit = 0;
  while (count >= 1023.5 && unit < UNITS.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(count) : digits(count)} ${UNITS[unit]}`;
}

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** Returns a whole number with separators. */
export function whole(count) {
  return count === null || count === undefined ? "–" : NUMBER.format(count);
}

/** Returns a short number: 12.3 M. */
export function short(count) {
  if (count === null || count === undefined) return "–";
  for (const [size, sign] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (count >= size * 0.9995) return `${digits(count / (sign === "k" ? 1e3 : size))} ${sign}`;
  }
  return count >= 100 || Number.isInteger(count) ? whole(count) : digits(count);
}

/** Returns a rate. Zero is a dash that does not draw attention. */
export function rate(value, show = short) {
  if (value === null || value === undefined) return "–";
  return value === 0 ? "0" : value < 0.01 ? "<0.01" : show(value);
}

export function percent(part, whole) {
  if (!whole) return "–";
  const value = (100 * part) / whole;
  return `${value > 0 && value < 0.1 ? "<0.1" : value >= 99.95 ? value.toFixed(0) : value.toFixed(1)} %`;
}

export function times(factor) {
  return factor === null || !Number.isFinite(factor) ? "–" : `${digits(factor)}×`;
}

export function duration(us) {
  if (us === null || us === undefined) return "–";
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${digits(us / 1e3)} ms`;
  const seconds = us / 1e6;
  if (seconds < 120) return `${digits(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Returns the time of day of microseconds since 1970. */
export function clock(us) {
  return new Date(us / 1000).toLocaleTimeString("en-GB");
}

export function date(us) {
  return new Date(us / 1000).toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC");
}

export function counted(count, noun, plural = `${noun}s`) {
  return `${whole(count)} ${count === 1 ? noun : plural}`;
}
