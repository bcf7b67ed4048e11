// Values as text: JSON, MessagePack, text, integers, hexadecimal.

import { toHex, toInteger, toText, NOTATIONS } from "./bytes.js";
import { h } from "./dom.js";
import { bytes as size } from "./format.js";
import { showMessagePack } from "./msgpack.js";
import { showTuple } from "./tuples.js";

const PREVIEW = 300;
/** Bytes of a hexadecimal view. */
const DUMP_MAX = 16 << 10;

/** Returns whether a text is a JSON object, array or anything else that JSON.parse takes. */
function isJson(text) {
  if (!/^\s*[[{"\d-]|^\s*(null|true|false)\s*$/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * Returns JSON with indents. Only white space between tokens changes, so numbers stay as they are
 * written: JSON.stringify would round long ones.
 */
export function indent(text) {
  // Deeply nested values would become thousands of times as long.
  const longest = 8 * text.length + 4096;
  let depth = 0;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/gs) ?? [];
  let result = "";
  for (const [at, token] of tokens.entries()) {
    if (result.length > longest) return text;
    const after = tokens[at + 1];
    const line = (deeper) => `\n${"  ".repeat(Math.max(0, depth + deeper))}`;
    if (token === "{" || token === "[") {
      depth += 1;
      result += token + (after === "}" || after === "]" ? "" : line(0));
    } else if (token === "}" || token === "]") {
      depth -= 1;
      const before = tokens[at - 1];
      result += (before === "{" || before === "[" ? "" : line(0)) + token;
    } else if (token === ",") result += token + line(0);
    else if (token === ":") result += ": ";
    else result += token;
  }
  return result;
}

/** Returns lines of hexadecimal digits with their characters. */
function dump(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, DUMP_MAX); at += 16) {
    const line = bytes.slice(at, at + 16);
    const digits = Array.from(line, (byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const characters = Array.from(line, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits}  ${characters}`);
  }
  if (bytes.length > DUMP_MAX) lines.push(`… ${size(bytes.length - DUMP_MAX)} more`);
  return lines.join("\n");
}

/** The notations of values. `show` returns a text, or `null` if the bytes do not have it. */
export const VALUE_NOTATIONS = {
  json: { title: "JSON", show: (bytes) => { const text = toText(bytes); return text !== null && isJson(text) ? indent(text) : null; } },
  text: { title: "text", show: toText },
  msgpack: { title: "MessagePack", show: (bytes) => { const text = showMessagePack(bytes); return text === null ? null : indent(text); } },
  tuple: { title: "tuple", show: showTuple },
  integer: { title: "big-endian integer", show: (bytes) => toInteger(bytes)?.toString() ?? null },
  little: { title: "little-endian integer", show: (bytes) => toInteger(bytes.toReversed())?.toString() ?? null },
  hex: { title: "hexadecimal", show: dump },
};

/** Returns the notation that suits a value. */
export function guessValue(bytes, codec) {
  const named = codec?.split("/")[1];
  if (named && VALUE_NOTATIONS[named]?.show(bytes) !== null && VALUE_NOTATIONS[named]) return named;
  const text = toText(bytes);
  if (text === null || /[\u0000-\u0008\u000e-\u001f]/.test(text)) return "hex";
  return /^\s*[[{]/.test(text) && isJson(text) ? "json" : "text";
}

/** Returns the beginning of a value for a row of a table. */
export function preview(bytes, notation, codec) {
  if (bytes.length === 0) return h("span", { class: "raw" }, "empty");
  const chosen = notation === "auto" ? guessValue(bytes, codec) : notation;
  // A JSON text is on one line here, as it is stored.
  if (chosen === "json" || chosen === "text") {
    const shown = NOTATIONS.text.show(bytes.slice(0, 4 * PREVIEW)) ?? NOTATIONS.text.show(bytes);
    if (shown !== null) return shown.slice(0, PREVIEW);
  } else if (chosen !== "hex") {
    const shown = VALUE_NOTATIONS[chosen].show(bytes);
    if (shown !== null) return shown.replace(/\s*\n\s*/g, " ").slice(0, PREVIEW);
  }
  return h("span", { class: "raw" }, `0x${toHex(bytes.slice(0, 48))}${bytes.length > 48 ? `… ${size(bytes.length)}` : ""}`);
}
