// Keys of tuple trees: the FoundationDB tuple layer, as JSON text.
//
// The text is that of the module `text` of braiddb-typed. Integers are parsed and shown exactly, as
// BigInt: a JavaScript number would change those above 2^53, and so the key.

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function unhex(text) {
  if (typeof text !== "string" || text.length % 2 || !/^[0-9a-f]*$/i.test(text)) throw new Error("bad hexadecimal digits");
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

class Malformed extends Error {}

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  take(count) {
    if (this.at + count > this.bytes.length) throw new Malformed();
    this.at += count;
    return this.bytes.slice(this.at - count, this.at);
  }

  /** Bytes up to a zero; a zero with 0xff after it is a byte of the text. */
  terminated() {
    const found = [];
    for (;;) {
      const [byte] = this.take(1);
      if (byte !== 0) found.push(byte);
      else if (this.bytes[this.at] === 0xff) {
        found.push(0);
        this.at += 1;
      } else return Uint8Array.from(found);
    }
  }

  integer(code) {
    const isNegative = code < 0x14;
    let length = Math.abs(code - 0x14);
    if (length === 9) {
      [length] = this.take(1);
      if (isNegative) length ^= 0xff;
      // Shorter ones have their own codes.
      if (length < 9) throw new Malformed();
    }
    const digits = this.take(length);
    if (length > 0 && digits[0] === (isNegative ? 0xff : 0)) throw new Malformed();
    const magnitude = isNegative ? digits.map((byte) => byte ^ 0xff) : digits;
    const number = length === 0 ? 0n : BigInt(`0x${hex(magnitude)}`);
    const fits = isNegative ? number <= 1n << 63n : number < 1n << 64n;
    const text = isNegative ? `-${number}` : `${number}`;
    if (fits) return text;
    return `{"int":"${isNegative ? "-" : ""}0x${hex(magnitude)}"}`;
  }

  float(size) {
    const bytes = this.take(size);
    // Negative numbers are stored inverted, others with their sign bit set.
    const bits = bytes[0] & 0x80 ? bytes.map((byte, at) => (at === 0 ? byte ^ 0x80 : byte)) : bytes.map((byte) => byte ^ 0xff);
    const view = new DataView(bits.buffer);
    const number = size === 4 ? view.getFloat32(0) : view.getFloat64(0);
    const name = size === 4 ? "float" : "double";
    if (!Number.isFinite(number)) return `{"${name}":"${hex(bits)}"}`;
    return size === 4 ? `{"float":${decimal(number)}}` : decimal(number);
  }

  element() {
    const [code] = this.take(1);
    switch (code) {
      case 0x00: return "null";
      case 0x01: return `{"bytes":"${hex(this.terminated())}"}`;
      case 0x02: return JSON.stringify(UTF8.decode(this.terminated()));
      case 0x05: return this.nested();
      case 0x20: return this.float(4);
      case 0x21: return this.float(8);
      case 0x26: return "false";
      case 0x27: return "true";
      case 0x30: return `{"uuid":"${hex(this.take(16)).replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-")}"}`;
      case 0x33: return `{"versionstamp":"${hex(this.take(12))}"}`;
      default:
        if (code >= 0x0b && code <= 0x1d) return this.integer(code);
        throw new Malformed();
    }
  }

  nested() {
    const elements = [];
    for (;;) {
      if (this.bytes[this.at] === 0x00) {
        if (this.bytes[this.at + 1] !== 0xff) {
          this.at += 1;
          return `[${elements.join(",")}]`;
        }
        this.at += 2;
        elements.push("null");
      } else elements.push(this.element());
    }
  }
}

/** Returns a number with a point or an exponent, so that it does not read as an integer. */
function decimal(number) {
  const text = Object.is(number, -0) ? "-0.0" : String(number);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

/** Returns the JSON text of a packed tuple, or `null` if the bytes are none. */
export function showTuple(bytes) {
  const reader = new Reader(bytes);
  const elements = [];
  try {
    while (reader.at < bytes.length) elements.push(reader.element());
  } catch {
    return null;
  }
  return `[${elements.join(",")}]`;
}

/** Parses JSON, with integers as BigInt. */
function parse(text) {
  let at = 0;
  const token = /\s*(?:([[\]{},:])|("(?:[^"\\\u0000-\u001f]|\\.)*")|(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)|(null|true|false))\s*/y;
  const next = () => {
    token.lastIndex = at;
    const match = token.exec(text);
    if (!match) throw new Error(`not JSON at character ${at + 1}`);
    at = token.lastIndex;
    return match;
  };
  const peek = () => text.slice(at).trimStart()[0];
  const value = () => {
    const [, sign, string, number, word] = next();
    if (string) return JSON.parse(string);
    if (number) return /[.eE]/.test(number) ? Number(number) : BigInt(number);
    if (word) return JSON.parse(word);
    if (sign === "[") return list("]", value);
    if (sign === "{") return Object.fromEntries(list("}", () => [JSON.parse(next()[2] ?? "!"), (next(), value())]));
    throw new Error(`not JSON at character ${at}`);
  };
  const list = (end, item) => {
    const items = [];
    if (peek() === end) {
      next();
      return items;
    }
    for (;;) {
      items.push(item());
      const sign = next()[1];
      if (sign === end) return items;
      if (sign !== ",") throw new Error(`not JSON at character ${at}`);
    }
  };
  const parsed = value();
  if (text.slice(at).trim()) throw new Error(`more text at character ${at + 1}`);
  return parsed;
}

function packInteger(number) {
  const isNegative = number < 0n;
  const digits = (isNegative ? -number : number).toString(16);
  const magnitude = number === 0n ? new Uint8Array() : unhex(digits.padStart(digits.length + (digits.length % 2), "0"));
  const { length } = magnitude;
  if (length > 255) throw new Error("an integer of more than 255 bytes");
  const isLong = length > 8;
  const code = 0x14 + (isNegative ? -1 : 1) * (isLong ? 9 : length);
  const bytes = isNegative ? magnitude.map((byte) => byte ^ 0xff) : magnitude;
  return [code, ...(isLong ? [isNegative ? length ^ 0xff : length] : []), ...bytes];
}

function packFloat(number, size) {
  const view = new DataView(new ArrayBuffer(size));
  if (typeof number === "string") new Uint8Array(view.buffer).set(unhex(number));
  else if (size === 4) view.setFloat32(0, Number(number));
  else view.setFloat64(0, Number(number));
  const bits = new Uint8Array(view.buffer);
  const bytes = bits[0] & 0x80 ? bits.map((byte) => byte ^ 0xff) : bits.map((byte, at) => (at === 0 ? byte | 0x80 : byte));
  return [size === 4 ? 0x20 : 0x21, ...bytes];
}

function terminated(code, bytes) {
  return [code, ...Array.from(bytes).flatMap((byte) => (byte === 0 ? [0, 0xff] : [byte])), 0];
}

function packElement(element, isNested) {
  if (element === null) return isNested ? [0x00, 0xff] : [0x00];
  if (element === false) return [0x26];
  if (element === true) return [0x27];
  if (typeof element === "bigint") return packInteger(element);
  if (typeof element === "number") return packFloat(element, 8);
  if (typeof element === "string") return terminated(0x02, new TextEncoder().encode(element));
  if (Array.isArray(element)) return [0x05, ...element.flatMap((one) => packElement(one, true)), 0x00];
  const [[name, value], ...others] = Object.entries(element);
  if (others.length) throw new Error("an object must have one name");
  switch (name) {
    case "bytes": return terminated(0x01, unhex(value));
    case "uuid": return [0x30, ...fixed(String(value).replaceAll("-", ""), 16)];
    case "versionstamp": return [0x33, ...fixed(value, 12)];
    case "float": return packFloat(value, 4);
    case "double": return packFloat(value, 8);
    case "int": {
      const match = /^(-?)(0x[0-9a-f]+)$/i.exec(value);
      if (!match) throw new Error("an int needs a text such as -0x1f");
      return packInteger(match[1] ? -BigInt(match[2]) : BigInt(match[2]));
    }
    default: throw new Error(`no element is named ${name}`);
  }
}

function fixed(text, size) {
  const bytes = unhex(text);
  if (bytes.length !== size) throw new Error(`${size} bytes are needed`);
  return bytes;
}

/** Packs a JSON array, or one element. Throws an error that names the offending part. */
export function packTuple(text) {
  const parsed = parse(text);
  const elements = Array.isArray(parsed) ? parsed : [parsed];
  return Uint8Array.from(elements.flatMap((element) => packElement(element, false)));
}
