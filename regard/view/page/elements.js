/* HTML and SVG elements, and the lines of text beside figures.

   regard/view/page.py inlines one JSON object; the function named after a tab's kind, in the file of that name, draws
   the tab. Layers, heads, words and positions are counted from 0 in the data and in data- attributes, and from 1 in
   texts. The data-value of an element holds its number in full precision. */
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = document.querySelector("svg").namespaceURI;

function element(name, attributes, ...children) {
  return fillElement(document.createElement(name), attributes, children);
}

function shape(name, attributes, ...children) {
  return fillElement(document.createElementNS(SVG, name), attributes, children);
}

/** Attributes that are null or false are left out; those whose name begins with "on" are listeners. */
function fillElement(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") node.style.cssText = value; // allowed by a policy that forbids style attributes
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== false && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function figure(title, description, ...content) {
  return element("figure", {}, element("h3", {}, title), description && note(description), ...content);
}

function note(...text) {
  return element("p", { class: "note" }, ...text);
}

function box(kind, ...content) {
  return element("div", { class: kind }, ...content);
}

/** The line below a figure with the value under the pointer. */
function readout() {
  return element("output", { class: "readout" });
}

function setReadout(place, text, value) {
  place.textContent = text;
  place.dataset.value = value;
}

/** Redraw when the available width changes. */
function redrawOnResize(host, draw) {
  let width = 0;
  new ResizeObserver(([entry]) => {
    const newWidth = Math.round(entry.contentRect.width);
    if (newWidth === 0 || newWidth === width) return;
    width = newWidth;
    requestAnimationFrame(() => draw(newWidth));
  }).observe(host);
}
