/* Line charts. */

const EDGE = { left: 46, right: 12, top: 8, bottom: 26 }; // pixels around the plot, for axis labels

function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
  const from = Math.ceil(low / step - 1e-9);
  return range(Math.floor(high / step + 1e-9) - from + 1).map((i) => (from + i) * step);
}

/** Lines [{name, x, y, style}]; a single line needs no name; style is "main", "dots" or "quiet" (no readout). `names`
    are labels of a categorical axis. Point or use the arrow keys to read values. */
function chart({ label, across, lines, names, height = 190, fromZero = false, axis = axisLabel }) {
  const xs = lines.flatMap((line) => line.x);
  const ys = lines.flatMap((line) => line.y).filter((y) => y !== null);
  if (ys.length === 0) return note("The run logged no values.");
  const [left, right, bottom, top] = [smallest(xs), largest(xs), smallest(ys), largest(ys)];
  const margin = 0.05 * (top - bottom || 1);
  const [low, high] = [fromZero ? Math.min(0, bottom) : bottom - margin, top + margin];
  const labelled = lines.filter((line) => line.style !== "quiet");
  const host = element("div", { class: "chart", tabindex: 0, role: "application", "aria-label": label });
  const pointed = readout();
  const cross = shape("g", { class: "cross" });
  let width = 0;
  let at = right;
  const inner = () => width - EDGE.left - EDGE.right;
  const X = (x) => EDGE.left + ((x - left) / (right - left || 1)) * inner();
  const Y = (y) => height - EDGE.bottom - ((y - low) / (high - low)) * (height - EDGE.top - EDGE.bottom);
  const dot = (x, y) => shape("circle", { cx: X(x), cy: Y(y), r: 3 });
  const closer = (line) => (best, x, i) => (Math.abs(x - at) < Math.abs(line.x[best] - at) ? i : best);
  const nearest = (line) => line.x.reduce(closer(line), 0);

  function drawLine(line) {
    const known = range(line.x.length).filter((i) => line.y[i] !== null);
    const step = (i, n) => `${known[n - 1] === i - 1 ? "L" : "M"}${X(line.x[i]).toFixed(1)} ${Y(line.y[i]).toFixed(1)}`;
    const dots = line.style === "dots" && known.map((i) => dot(line.x[i], line.y[i]));
    return shape("g", { class: line.style }, shape("path", { d: known.map(step).join("") }), dots);
  }
  function rule(y) {
    const line = shape("line", { class: "rule", x1: EDGE.left, x2: width - EDGE.right, y1: Y(y), y2: Y(y) });
    return [line, shape("text", { x: EDGE.left - 8, y: Y(y) + 4, "text-anchor": "end" }, axisLabel(y))];
  }
  function mark([x, text]) {
    const anchor = X(x) > width - 30 ? "end" : "middle";
    return shape("text", { x: Math.min(X(x), width - 2), y: height - 8, "text-anchor": anchor }, text);
  }
  function marks() {
    if (!names) return ticks(left, right, Math.max(2, width / 90)).map((x) => [x, axis(x)]);
    const every = Math.ceil(names.length / Math.max(2, width / 80));
    return [...names.entries()].filter(([i]) => i % every === 0);
  }
  function showPoint() {
    if (labelled.length === 0) return;
    const points = labelled.map((line) => ({ name: line.name, x: line.x[nearest(line)], y: line.y[nearest(line)] }));
    const [{ x, y }] = points;
    const dots = points.filter((point) => point.y !== null).map((point) => dot(point.x, point.y));
    cross.replaceChildren(shape("line", { x1: X(x), x2: X(x), y1: EDGE.top, y2: height - EDGE.bottom }), ...dots);
    const prefix = (point) => (points.length > 1 ? `${point.name} ` : "");
    const values = points.map((point) => prefix(point) + formatNumber(point.y)).join(", ");
    setReadout(pointed, `${across} ${names ? names[x] : axis(x)}: ${values}`, y);
  }
  function move(x) {
    at = clamp(x, left, right);
    showPoint();
  }
  host.addEventListener("pointermove", (event) => {
    const along = event.clientX - host.getBoundingClientRect().left - EDGE.left;
    move(left + (along / inner()) * (right - left));
  });
  host.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || labelled.length === 0) return;
    event.preventDefault();
    move(labelled[0].x[nearest(labelled[0]) + by] ?? at);
  });
  redrawOnResize(host, (newWidth) => {
    width = newWidth;
    const parts = [ticks(low, high, 5).map(rule), marks().map(mark), lines.map(drawLine), cross];
    host.replaceChildren(shape("svg", { width, height, "aria-hidden": "true" }, parts));
    showPoint();
  });
  const legend = labelled.map((line) => element("li", { class: line.style }, line.name));
  return element("div", {}, labelled.length > 1 && element("ul", { class: "legend" }, legend), host, pointed);
}
