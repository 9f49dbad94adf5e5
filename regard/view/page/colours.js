/* Colours: one ramp for shares, one for numbers of both signs, and pixels painted with them. */

const painters = new Map(); // how each canvas is painted again when light becomes dark
let shades = null;

function painted(canvas, paint) {
  painters.set(canvas, paint);
  paint();
}

function repaintAll() {
  shades = null;
  for (const [canvas, paint] of painters) canvas.isConnected ? paint() : painters.delete(canvas);
}

/** 256 pixels between the colours that a property of the style sheet names. */
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
  // The root lets weights of a few hundredths be seen beside one of 1.
  shades ??= { heat: ramp("--heat", Math.sqrt), signed: ramp("--signed", (x) => x) };
  return shades;
}

function heat(share) {
  return colours().heat[Math.round(255 * within(share, 0, 1))];
}

function signed(x) {
  return colours().signed[Math.round(127.5 + 127.5 * within(x, -1, 1))];
}

/** How dark a word or a cell is. */
function shade(share) {
  return `--shade: ${within(share, 0, 1)}`;
}

/** One pixel for each number; the style sheet makes it larger. */
function paint(canvas, rows, columns, colour) {
  [canvas.width, canvas.height] = [columns, rows];
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i++) pixels[i] = colour(i);
  context.putImageData(image, 0, 0);
}

/** A small map: each pixel is the largest of a square of weights, so that thin lines stay to be seen. */
function paintSmall(canvas, rows, columns, weights) {
  const side = Math.ceil(Math.max(rows, columns) / 48);
  const [high, wide] = [Math.ceil(rows / side), Math.ceil(columns / side)];
  const most = new Float32Array(high * wide);
  for (let i = 0; i < weights.length; i++) {
    const at = Math.floor(i / columns / side) * wide + Math.floor((i % columns) / side);
    if (weights[i] > most[at]) most[at] = weights[i];
  }
  paint(canvas, high, wide, (i) => heat(most[i]));
}

/** What the colours of a drawing stand for. */
function scale(low, high, colour) {
  const canvas = element("canvas", { "aria-hidden": "true" });
  painted(canvas, () => paint(canvas, 1, 101, (i) => colour(i / 100)));
  return box("scale", low, canvas, high);
}
