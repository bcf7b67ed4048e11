// One record: its value in a notation, and its changes.
//
// A change is sent with the version that is shown (If-Match), so it never overwrites another's: if
// the record changed meanwhile, the server refuses, and both values are shown.

import { Refusal, Unreachable, request, treePath } from "./api.js";
import { isEqual, NOTATIONS, ofHex, ofText, toHex, toPercent, toText } from "./bytes.js";
import { h, setText } from "./dom.js";
import { bytes, date, duration, whole } from "./format.js";
import { guessValue, VALUE_NOTATIONS } from "./values.js";

/** Bytes of a value that are read to be shown. Longer ones are read in part, and not changed here. */
const SHOWN_MAX = 256 << 10;
const DOWNLOAD_MAX = 512 << 20;

export class Record {
  constructor(browser) {
    Object.assign(this, { browser, mayWrite: false, key: null, found: null, notation: null, reading: null });
    this.node = h("aside", { class: "record", "aria-label": "Record", tabindex: "-1" });
    this.clear();
  }

  clear(message = "Choose a record to see it whole.") {
    this.key = this.found = this.reading = this.editor = null;
    this.node.replaceChildren(h("p", { class: "empty" }, message));
  }

  setWrite(mayWrite) {
    if (this.mayWrite === mayWrite) return;
    this.mayWrite = mayWrite;
    if (this.found && !this.editor) this.draw();
  }

  path(key = this.key) {
    // Browsers take these as steps in a path, in any encoding.
    const isStep = key.length > 0 && key.length < 3 && key.every((byte) => byte === 46);
    if (key.length === 0 || isStep) throw new Refusal(0, "No path", "a key that is empty, . or .. has no URL: use the command `braid`");
    return `${treePath(this.browser.name)}/${toPercent(key)}`;
  }

  /**
   * Reads and shows a record. Another may be chosen meanwhile: then its answer is dropped. Buttons of
   * the one before go at once, since they would act on this one.
   */
  async show(key, focus = true) {
    this.clear("Reading the record.");
    const reading = {};
    Object.assign(this, { key, reading });
    try {
      const found = await this.read(key);
      if (this.reading !== reading) return;
      Object.assign(this, { found, notation: null });
      this.draw();
    } catch (error) {
      if (this.reading !== reading) return;
      this.fail(error);
    }
    if (focus) this.node.focus({ preventScroll: false });
  }

  /** Shows a value of a key that has many. Pairs have no versions: they are added and deleted only. */
  showPair(key, value) {
    this.editor = this.reading = null;
    this.key = key;
    this.notation = null;
    this.found = { value, length: value.length, etag: null, expires: null };
    this.draw();
    this.node.focus();
  }

  /** Reads the value, or the beginning of a long one. A range is of the bytes, with their length and tag. */
  async read(key) {
    const path = this.path(key);
    const response = await request("GET", path, { headers: { Range: `bytes=0-${SHOWN_MAX - 1}` } }).catch((error) => {
      if (error instanceof Refusal && error.status === 404) throw new Refusal(404, "Not found", "The tree has no record with this key: it was deleted, or it expired.");
      // An empty value has no range.
      if (error instanceof Refusal && error.status === 416) return request("GET", path);
      throw error;
    });
    const value = new Uint8Array(await response.arrayBuffer());
    const range = /\/(\d+)$/.exec(response.headers.get("content-range") ?? "");
    const expires = response.headers.get("braid-expires-us");
    return { value, length: range ? Number(range[1]) : value.length, etag: response.headers.get("etag"), expires: expires === null ? null : Number(expires) };
  }

  fail(error) {
    this.found = null;
    if (error instanceof Refusal && error.status === 401) return this.browser.app.fail(error);
    const text = error instanceof Refusal || error instanceof Unreachable ? error.message : String(error);
    this.node.replaceChildren(h("h2", { class: "key" }, this.browser.showKey(this.key)), h("p", { class: "error", role: "alert" }, text));
  }

  redraw() {
    if (this.found && !this.editor) this.draw();
  }

  draw() {
    const { found, key, browser } = this;
    const chosen = this.notation ?? (browser.valueNotation === "auto" ? guessValue(found.value, browser.info?.codec) : browser.valueNotation);
    const isWhole = found.value.length === found.length;
    const suitable = Object.entries(VALUE_NOTATIONS).filter(([name, { show }]) => name === "hex" || name === chosen || show(found.value) !== null);
    const text = VALUE_NOTATIONS[chosen].show(found.value);
    const tabs = suitable.map(([name, { title }]) => h("button", { type: "button", class: "plain", "aria-pressed": String(name === chosen), onclick: () => {
      this.notation = name;
      this.draw();
      this.node.querySelector('[aria-pressed="true"]')?.focus();
    } }, title));
    this.node.replaceChildren(
      h("h2", { class: "key" }, browser.showKey(key)),
      h("dl", {}, h("dt", {}, "key"), h("dd", { class: "mono" }, `${toHex(key).slice(0, 96)}${key.length > 48 ? "…" : ""}, ${bytes(key.length)}`),
        h("dt", {}, "value"), h("dd", {}, `${whole(found.length)} bytes${isWhole ? "" : `; the first ${bytes(found.value.length)} are shown`}`),
        found.etag === null ? null : [h("dt", {}, "version"), h("dd", { class: "mono" }, found.etag.replaceAll('"', ""))],
        found.expires === null ? null : [h("dt", {}, "expires"), h("dd", {}, `${date(found.expires)}, ${remaining(found.expires)}`)]),
      h("div", { class: "tabs", role: "group", "aria-label": "Notation of the value" }, tabs),
      text === null ? h("p", { class: "empty" }, `The value is no ${VALUE_NOTATIONS[chosen].title}.`) : h("pre", { tabindex: "0", "aria-label": "Value" }, text === "" ? "(empty)" : text),
      h("div", { class: "actions" }, found.etag === null ? [] : this.actions(isWhole)));
  }

  actions(isWhole) {
    const actions = [h("button", { type: "button", onclick: () => this.download() }, "Download")];
    if (!this.mayWrite) return actions;
    actions.push(h("button", { type: "button", onclick: () => this.confirmDelete() }, "Delete"));
    if (isWhole) actions.unshift(h("button", { type: "button", class: "main", onclick: () => this.edit() }, "Edit"));
    return actions;
  }

  async download() {
    if (this.found.length > DOWNLOAD_MAX) return this.message(`The value has ${bytes(this.found.length)}: read it with \`braid get\`.`);
    try {
      const response = await request("GET", this.path());
      const link = h("a", { href: URL.createObjectURL(await response.blob()), download: (toText(this.key) ?? toHex(this.key)).replace(/[^\w.-]+/g, "_").slice(0, 60) || "value" });
      link.click();
      URL.revokeObjectURL(link.href);
    } catch (error) {
      this.message(error.message);
    }
  }

  message(text) {
    this.node.querySelector(".error")?.remove();
    this.node.append(h("p", { class: "error", role: "alert" }, text));
  }

  // ------------------------------------------------------------------------------------- changes

  /** Opens an editor of the value, or of a new record. */
  edit() {
    const { value } = this.found;
    const text = toText(value);
    // A text field changes carriage returns.
    const isText = text !== null && !text.includes("\r");
    this.open({ title: "Change the value", value: isText ? text : toHex(value), isText, onlyHex: !isText });
  }

  create() {
    this.key = this.found = this.reading = null;
    this.open({ title: "New record", value: "", isText: true, isNew: true });
  }

  open({ title, value, isText, isNew, onlyHex }) {
    this.editor = true;
    const area = h("textarea", { id: "edit-value", rows: "14", spellcheck: "false", value });
    const form = h("select", { id: "edit-form" }, h("option", { value: "text", selected: isText }, "text"), h("option", { value: "hex", selected: !isText }, "hexadecimal"));
    form.value = isText ? "text" : "hex";
    form.disabled = Boolean(onlyHex);
    let present = form.value;
    form.addEventListener("change", () => {
      const now = parseValue(area.value, present);
      const shown = now && (form.value === "text" ? toText(now) : toHex(now));
      if (shown === null || shown === undefined) {
        this.message(now ? "These bytes are no UTF-8 text." : "These are not pairs of hexadecimal digits.");
        form.value = present;
      } else {
        area.value = shown;
        present = form.value;
      }
    });
    const key = h("input", { id: "edit-key", spellcheck: "false", autocomplete: "off", required: true });
    const ttl = h("input", { id: "edit-ttl", type: "number", min: "0", max: "4294967295", placeholder: this.ttlHint() });
    const notation = NOTATIONS[this.browser.notation()];
    this.node.replaceChildren(h("form", { class: "editor", onsubmit: (event) => (event.preventDefault(), this.save({ area, form: present, key: isNew ? key : null, ttl })) },
      h("h2", {}, title), isNew ? [h("label", { for: "edit-key" }, `Key, as ${notation.title}`), key] : h("p", { class: "key" }, this.browser.showKey(this.key)),
      h("label", { for: "edit-form" }, "Value, as"), form, onlyHex ? h("p", { class: "count" }, "A text field would change these bytes.") : null,
      h("label", { for: "edit-value", class: "unseen" }, "Value"), area,
      h("label", { for: "edit-ttl" }, "Lifetime in seconds"), ttl,
      h("div", { class: "actions" }, h("button", { class: "main" }, "Save"), h("button", { type: "button", onclick: () => this.cancel() }, "Cancel"))));
    (isNew ? key : area).focus();
  }

  ttlHint() {
    if (this.found?.expires) return "unchanged";
    const ttl = this.browser.info?.ttl;
    return ttl === null || ttl === undefined ? "without end" : `${ttl}, as the tree has it`;
  }

  async save({ area, form, key, ttl }) {
    const value = parseValue(area.value, form);
    if (value === null) return this.message("The value is not pairs of hexadecimal digits.");
    let target = this.key;
    try {
      if (key) target = this.browser.parseKey(key.value);
    } catch (error) {
      return this.message(error.message);
    }
    const condition = key ? { "If-None-Match": "*" } : { "If-Match": this.found.etag };
    const before = this.found;
    const seconds = ttl.value !== "" ? ttl.value : this.found?.expires ? Math.max(1, Math.ceil(this.found.expires / 1e6 - Date.now() / 1000)) : null;
    try {
      await request("PUT", this.path(target) + (seconds === null ? "" : `?ttl=${seconds}`), { headers: condition, body: value });
    } catch (error) {
      // The panel shows another record by now.
      if (this.found !== before || !this.editor) return this.message(`${this.browser.showKey(target)} was not saved: ${error.message}`);
      if (error instanceof Refusal && error.status === 412) return key ? this.message("A record has this key. Search for it to change it.") : this.showConflict(value);
      return this.changeFailed(error);
    }
    await this.browser.load();
    this.show(target);
  }

  changeFailed(error) {
    if (error instanceof Refusal && error.status === 401) return this.browser.app.fail(error);
    if (error instanceof Unreachable) return this.message("The server does not answer: it is unknown whether the change was made. Read the record again.");
    this.message(error.message);
  }

  /** Another client changed the record: shows its value beside the refused one. */
  async showConflict(mine) {
    const before = this.found;
    let theirs;
    try {
      theirs = await this.read(this.key);
      if (this.found !== before) return;
    } catch (error) {
      if (!(error instanceof Refusal && error.status === 404)) return this.changeFailed(error);
      return this.message("The record was deleted meanwhile. Nothing was changed. Copy your text, if you need it, and make a new record.");
    }
    const show = (value) => toText(value) ?? toHex(value);
    const isSame = isEqual(mine, theirs.value) && theirs.length === mine.length;
    const old = this.node.querySelector(".conflict");
    const node = h("div", { class: "conflict", role: "alert" },
      h("p", {}, h("strong", {}, "The record changed meanwhile."), isSame ? " It has your value now." : " Nothing was overwritten. This is its present value:"),
      isSame ? null : h("pre", { tabindex: "0" }, show(theirs.value)),
      h("div", { class: "actions" },
        h("button", { type: "button", onclick: () => this.take(theirs) }, "Take the present value"),
        isSame || theirs.value.length < theirs.length ? null : h("button", { type: "button", onclick: () => {
          // The next save replaces this version, which the user has seen.
          this.found = theirs;
          node.remove();
          this.message("Save replaces the present value with your text.");
        } }, "Keep my text")));
    old?.remove();
    this.node.append(node);
    node.querySelector("button").focus();
  }

  take(found) {
    this.editor = null;
    this.found = found;
    this.draw();
    this.browser.load();
  }

  cancel() {
    this.editor = null;
    if (this.found) this.draw();
    else this.clear();
    this.node.focus();
  }

  confirmDelete() {
    const actions = this.node.querySelector(".actions");
    const yes = h("button", { type: "button", class: "danger", onclick: () => this.delete() }, "Delete it");
    actions.replaceChildren(h("span", {}, "Delete this record?"), yes, h("button", { type: "button", onclick: () => this.draw() }, "Keep it"));
    yes.focus();
  }

  async delete() {
    try {
      await request("DELETE", this.path(), { headers: { "If-Match": this.found.etag } });
    } catch (error) {
      if (!(error instanceof Refusal && error.status === 412)) return this.changeFailed(error);
      await this.show(this.key);
      return this.message(this.found ? "The record changed meanwhile, and was not deleted. This is its present value." : "The record was deleted already.");
    }
    this.clear("The record is deleted.");
    await this.browser.load();
    this.node.focus();
  }
}

function remaining(expires) {
  const left = expires - Date.now() * 1000;
  return left > 0 ? `in ${duration(left)}` : "now";
}

/** Returns the bytes of an edited value; `null` for wrong digits. */
function parseValue(text, form) {
  return form === "hex" ? ofHex(text) : ofText(text);
}
