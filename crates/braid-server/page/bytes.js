// Bytes as people read and write them.
//
// The server sends bytes as a string if they are UTF-8, else as {"hex":".."}. Here they are always a
// Uint8Array, so that a key goes back exactly as it came.

import { packTuple, showTuple } from "./tuples.js";

const ENCODER = new TextEncoder();
const STRICT = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export function ofJson(json) {
  return typeof json === "string" ? ENCODER.encode(json) : ofHex(json.hex);
}

export function ofText(text) {
  return ENCODER.encode(text);
}

/** Returns the text, or `null` if the bytes are not UTF-8. */
export function toText(bytes) {
  try {
    return STRICT.decode(bytes);
  } catch {
    return null;
  }
}

export function toHex(bytes) {
  let text = "";
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0");
  return text;
}

/** Returns the bytes of hexadecimal digits with any spaces, or `null`. */
export function ofHex(text) {
  const digits = text.replace(/\s+/g, "");
  if (digits.length % 2 || !/^[0-9a-f]*$/i.test(digits)) return null;
  return Uint8Array.from({ length: digits.length / 2 }, (_, at) => parseInt(digits.slice(2 * at, 2 * at + 2), 16));
}

/** Returns the big-endian unsigned integer of 1 to 16 bytes, or `null`. */
export function toInteger(bytes) {
  if (bytes.length === 0 || bytes.length > 16) return null;
  return BigInt(`0x${toHex(bytes)}`);
}

/** Returns a percent-encoded text of any bytes. */
export function toPercent(bytes) {
  let text = "";
  for (const byte of bytes) {
    const isPlain = (byte >= 48 && byte <= 57) || (byte >= 65 && byte <= 90) || (byte >= 97 && byte <= 122);
    text += isPlain || byte === 45 || byte === 95 ? String.fromCharCode(byte) : `%${byte.toString(16).padStart(2, "0")}`;
  }
  return text;
}

export function isEqual(a, b) {
  return a.length === b.length && a.every((byte, at) => byte === b[at]);
}

/** Returns the later one, in the order of keys. */
export function later(a, b) {
  const at = a.findIndex((byte, place) => byte !== b[place]);
  return at >= 0 && (at >= b.length || a[at] > b[at]) ? a : b;
}

/** Returns a text with characters that would not show as escapes. */
function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/gu, (character) => {
    const named = { "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0" }[character];
    return named ?? `\\u{${character.codePointAt(0).toString(16)}}`;
  });
}

/** The notations of keys and values. Each shows bytes, or returns `null` if they do not have it. */
export const NOTATIONS = {
  text: {
    title: "text",
    show: (bytes) => {
      const text = toText(bytes);
      return text === null ? null : visible(text);
    },
    parse: (text) => ofText(text),
    hint: "text",
  },
  integer: {
    title: "big-endian integer",
    show: (bytes) => toInteger(bytes)?.toString() ?? null,
    // The width is that of the tree's keys.
    parse: (text, width) => {
      if (!/^\d+$/.test(text.trim())) throw new Error("not a whole number");
      const digits = BigInt(text.trim()).toString(16);
      if (digits.length > 2 * width) throw new Error(`larger than ${width} bytes`);
      return ofHex(digits.padStart(2 * width, "0"));
    },
    hint: "whole number",
  },
  tuple: {
    title: "tuple",
    show: (bytes) => showTuple(bytes),
    parse: (text) => packTuple(text),
    hint: 'JSON array: ["a",7]',
  },
  hex: {
    title: "hexadecimal",
    show: (bytes) => toHex(bytes),
    parse: (text) => {
      const bytes = ofHex(text);
      if (bytes === null) throw new Error("not pairs of hexadecimal digits");
      return bytes;
    },
    hint: "hexadecimal digits",
  },
};

/** Returns the notation that suits all of some keys. */
export function guess(keys, codec) {
  if (codec?.startsWith("tuple/") && keys.every((key) => key[0] === 0xff || showTuple(key) !== null)) return "tuple";
  if (keys.length === 0) return "text";
  const texts = keys.map(toText);
  if (texts.every((text) => text !== null && !/[\u0000-\u0008\u000e-\u001f]/.test(text))) return "text";
  const widths = new Set(keys.map((key) => key.length));
  if (widths.size === 1 && [1, 2, 4, 8].includes(keys[0].length)) return "integer";
  return "hex";
}
