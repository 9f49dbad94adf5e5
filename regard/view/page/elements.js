/* What the page is made of: elements and shapes, and the lines of text beside drawings.

   The page holds one JSON object, which regard/view/page.py put there; each tab of it is drawn by the function of its
   kind, in the file of that name. Layers, heads, words and places are counted from 0 in the data and in data-
   attributes, and from 1 where a person reads them. A number that a person can read stands in full in the data-value
   of its element. */
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = document.querySelector("svg").namespaceURI;

function element(name, attributes, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function shape(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/** Attributes that are null or false stay away; those whose name begins with "on" are listeners. */
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== false && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function figure(title, says, ...content) {
  return element("figure", {}, element("h3", {}, title), says && note(says), ...content);
}

function note(...text) {
  return element("p", { class: "note" }, ...text);
}

function box(kind, ...content) {
  return element("div", { class: kind }, ...content);
}

/** The line below a drawing that tells of the place that is pointed at. */
function readout() {
  return element("output", { class: "readout" });
}

function tell(place, text, value) {
  place.textContent = text;
  place.dataset.value = value;
}

/** Draw again whenever the width that there is changes. */
function fitted(host, draw) {
  let width = 0;
  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now === 0 || now === width) return;
    width = now;
    requestAnimationFrame(() => draw(now));
  }).observe(host);
}
