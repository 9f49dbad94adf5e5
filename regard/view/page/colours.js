/* Colours: a sequential map for shares, a diverging map for signed numbers, and pixels painted with them. */

const painters = new Map(); // repaints each canvas when the theme changes
let colourMaps = null;

function keepPainted(canvas, paint) {
  painters.set(canvas, paint);
  paint();
}

function repaintAll() {
  colourMaps = null;
  for (const [canvas, paint] of painters) canvas.isConnected ? paint() : painters.delete(canvas);
}

/** 256 pixels that interpolate the colours in a property of the style sheet. */
function ramp(name, bend) {
  const names = getComputedStyle(document.documentElement).getPropertyValue(name).trim().split(/\s+/);
  const stops = names.map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const along = bend(i / 255) * (stops.length - 1);
    const from = Math.min(Math.floor(along), stops.length - 2);
    const [red, green, blue] = stops[from].map((c, k) => c + (along - from) * (stops[from + 1][k] - c));
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  });
}

function colours() {
  // The square root makes weights of a few percent visible beside a weight of 1.
  colourMaps ??= { heat: ramp("--heat", Math.sqrt), signed: ramp("--signed", (x) => x) };
  return colourMaps;
}

function heatColour(share) {
  return colours().heat[Math.round(255 * clamp(share, 0, 1))];
}

function divergingColour(x) {
  return colours().signed[Math.round(127.5 + 127.5 * clamp(x, -1, 1))];
}

/** The shade of a word or a cell. */
function shadeStyle(share) {
  return `--shade: ${clamp(share, 0, 1)}`;
}

/** One pixel per number; the style sheet enlarges it. */
function paint(canvas, rows, columns, colour) {
  [canvas.width, canvas.height] = [columns, rows];
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i++) pixels[i] = colour(i);
  context.putImageData(image, 0, 0);
}

/** A small map: each pixel is the maximum of a square of weights, so that thin lines stay visible. */
function paintSmall(canvas, rows, columns, weights) {
  const side = Math.ceil(Math.max(rows, columns) / 48);
  const [high, wide] = [Math.ceil(rows / side), Math.ceil(columns / side)];
  const most = new Float32Array(high * wide);
  for (let i = 0; i < weights.length; i++) {
    const at = Math.floor(i / columns / side) * wide + Math.floor((i % columns) / side);
    if (weights[i] > most[at]) most[at] = weights[i];
  }
  paint(canvas, high, wide, (i) => heatColour(most[i]));
}

/** The colour bar of a figure. */
function scale(low, high, colour) {
  const canvas = element("canvas", { "aria-hidden": "true" });
  keepPainted(canvas, () => paint(canvas, 1, 101, (i) => colour(i / 100)));
  return box("scale", low, canvas, high);
}
