/* Numbers: decode blobs, format numbers. */

/** Decode a blob: base64 of zlib-compressed little-endian bytes. */
async function numbers(blob, Kind = Float32Array) {
  const packed = atob(blob);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Kind(await new Response(stream).arrayBuffer());
}

function formatNumber(x, digits = 4) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x < 0 ? "−∞" : "∞";
  if (x === 0) return "0";
  const plain = Math.abs(x) >= 10 ** (1 - digits) && Math.abs(x) < 1e6;
  return minus(plain ? x.toFixed(digits) : x.toExponential(2));
}

/** A fixed number of digits, and no sign before a zero. */
function toFixed(x, digits) {
  return x === null ? "–" : minus(x.toFixed(digits).replace(/^-(?=[0.]*$)/, ""));
}

/** A number with few digits, for an axis. */
function axisLabel(x) {
  const plain = x === 0 || (Math.abs(x) >= 1e-3 && Math.abs(x) < 1e5);
  return minus(plain ? String(Number(x.toPrecision(4))) : x.toExponential(0));
}

function minus(text) {
  return text.replaceAll("-", "−");
}

function percent(share) {
  if (share > 0 && share < 0.0005) return "<\u00a00.1\u00a0%";
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}\u00a0%`;
}

function range(count) {
  return Array.from({ length: count }, (_, i) => i);
}

/** 1, 2, 3 ... */
function countFromOne(count) {
  return range(count).map((i) => i + 1);
}

function total(values) {
  return values.reduce((sum, x) => sum + x, 0);
}

function smallest(values) {
  return values.reduce((least, x) => (x < least ? x : least), Infinity);
}

function largest(values) {
  return values.reduce((most, x) => (x > most ? x : most), -Infinity);
}

function clamp(x, low, high) {
  return Math.min(high, Math.max(low, x));
}
