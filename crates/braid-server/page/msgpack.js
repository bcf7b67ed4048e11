// MessagePack as JSON text, for reading. Integers are shown exactly.

class Malformed extends Error {}

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const DEPTH_MAX = 100;

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
  }

  /** Returns the place of the next bytes, and steps over them. */
  step(count) {
    if (this.at + count > this.bytes.length) throw new Malformed();
    this.at += count;
    return this.at - count;
  }

  length(size) {
    const at = this.step(size);
    return size === 1 ? this.view.getUint8(at) : size === 2 ? this.view.getUint16(at) : this.view.getUint32(at);
  }

  text(length) {
    const at = this.step(length);
    return JSON.stringify(UTF8.decode(this.bytes.subarray(at, at + length)));
  }

  binary(length, name = "bytes") {
    const at = this.step(length);
    const digits = Array.from(this.bytes.subarray(at, at + length), (byte) => byte.toString(16).padStart(2, "0"));
    return `{"${name}":"${digits.join("")}"}`;
  }

  list(length, depth) {
    const items = [];
    for (let at = 0; at < length; at += 1) items.push(this.value(depth + 1));
    return `[${items.join(",")}]`;
  }

  map(length, depth) {
    const items = [];
    for (let at = 0; at < length; at += 1) {
      const key = this.value(depth + 1);
      items.push(`${key.startsWith('"') ? key : JSON.stringify(key)}:${this.value(depth + 1)}`);
    }
    return `{${items.join(",")}}`;
  }

  value(depth) {
    if (depth > DEPTH_MAX) throw new Malformed();
    const code = this.view.getUint8(this.step(1));
    if (code < 0x80) return String(code);
    if (code < 0x90) return this.map(code & 0x0f, depth);
    if (code < 0xa0) return this.list(code & 0x0f, depth);
    if (code < 0xc0) return this.text(code & 0x1f);
    if (code >= 0xe0) return String(code - 256);
    return this.coded(code, depth);
  }

  coded(code, depth) {
    switch (code) {
      case 0xc0: return "null";
      case 0xc2: return "false";
      case 0xc3: return "true";
      case 0xc4: case 0xc5: case 0xc6: return this.binary(this.length(1 << (code - 0xc4)));
      case 0xc7: case 0xc8: case 0xc9: return this.binary(this.length(1 << (code - 0xc7)) + 1, "extension");
      case 0xca: return number(this.view.getFloat32(this.step(4)));
      case 0xcb: return number(this.view.getFloat64(this.step(8)));
      case 0xcc: return String(this.view.getUint8(this.step(1)));
      case 0xcd: return String(this.view.getUint16(this.step(2)));
      case 0xce: return String(this.view.getUint32(this.step(4)));
      case 0xcf: return String(this.view.getBigUint64(this.step(8)));
      case 0xd0: return String(this.view.getInt8(this.step(1)));
      case 0xd1: return String(this.view.getInt16(this.step(2)));
      case 0xd2: return String(this.view.getInt32(this.step(4)));
      case 0xd3: return String(this.view.getBigInt64(this.step(8)));
      case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8: return this.binary((1 << (code - 0xd4)) + 1, "extension");
      case 0xd9: case 0xda: case 0xdb: return this.text(this.length(1 << (code - 0xd9)));
      case 0xdc: case 0xdd: return this.list(this.length(2 << (code - 0xdc)), depth);
      case 0xde: case 0xdf: return this.map(this.length(2 << (code - 0xde)), depth);
      default: throw new Malformed();
    }
  }
}

function number(value) {
  return Number.isFinite(value) ? String(value) : JSON.stringify(String(value));
}

/** Returns the JSON text of one MessagePack value, or `null` if the bytes are none. */
export function showMessagePack(bytes) {
  const reader = new Reader(bytes);
  try {
    const text = reader.value(0);
    return reader.at === bytes.length ? text : null;
  } catch {
    return null;
  }
}
