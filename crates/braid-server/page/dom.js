// Builds elements. Text is always set as text, so no byte of a record becomes markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Returns an HTML element. A property `onclick` adds a listener; others are attributes. */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** Returns an SVG element. */
export function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Sets the text of an element, if it differs: an equal text would end a selection in it. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const KEYS = new WeakMap();

/** Replaces the children, if the key differs from that of the last call. */
export function replaceIf(element, key, children) {
  if (KEYS.get(element) === key) return;
  KEYS.set(element, key);
  element.replaceChildren(...children());
}

/** Replaces the children that differ from new ones: a selection in the others stays. */
export function replaceChanged(element, children) {
  if (element.children.length !== children.length) return element.replaceChildren(...children);
  children.forEach((child, at) => {
    if (!element.children[at].isEqualNode(child)) element.children[at].replaceWith(child);
  });
}

/** Returns a colour of the style sheet, for a canvas. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
