/* Training: loss, rate and checks along the steps, and the gradient of every part. */

/** Means of at most `count` runs of neighbours: enough to draw. */
function thinned(x, y, count) {
  const wide = Math.ceil(x.length / count);
  const runs = range(Math.ceil(x.length / wide)).map((i) => [i * wide, Math.min(x.length, (i + 1) * wide)]);
  const mean = (values) => (values.length ? total(values) / values.length : null);
  const known = (run) => y.slice(...run).filter((one) => one !== null);
  return { x: runs.map(([, end]) => x[end - 1]), y: runs.map((run) => mean(known(run))) };
}

/** "body.encoder.0" is encoder 1. */
function partName(path) {
  const numbered = path.replace(/^body\./, "").replace(/\.(\d+)$/, (_, i) => ` ${Number(i) + 1}`);
  return numbered.replaceAll("_", " ");
}

/** The gradient of each part along the steps: many parts of very different sizes, so a map on a scale of powers. */
function gradientMap(parts, steps) {
  const values = parts.flatMap(([, row]) => row);
  const most = largest(values) || 1;
  const least = Math.max(most / 1e4, smallest(values.filter((x) => x > 0)));
  const share = (x) => Math.log(Math.max(x, least) / least) / (Math.log(most / least) || 1);
  const even = (along) => heat(along ** 2); // its own scale is of powers already
  const pointed = readout();
  const map = largeMap({
    label: "length of the gradient: rows are parts, columns are steps",
    rows: parts.length,
    columns: steps.length,
    colour: (i) => even(share(values[i])),
    rowNames: parts.map(([path]) => partName(path)),
    looked(row, column) {
      const [path, along] = parts[row];
      tell(pointed, `${partName(path)}, step ${steps[column]}: ${told(along[column])}`, along[column]);
    },
  });
  map.place.classList.add("long");
  map.look(0, steps.length - 1);
  const says = "Each row is a part of the model, time runs to the right. The scale is one of powers.";
  return figure("Gradient of each part", says, map.place, pointed, scale(told(least), told(most), even));
}

async function training(tab, place) {
  const valid = tab.valid ?? [];
  const spaced = (name) => name.replaceAll("_", " ");
  const whole = (x) => String(Math.round(x));
  const overSteps = (label, lines, more) => chart({ label, across: "step", axis: whole, lines, ...more });
  const noted = (name) => tab[name]?.some((x) => x !== null);
  const fine = (name, look) => ({ name, ...thinned(tab.steps, tab[name], 1200), look });
  const smooth = (name) => ({ name, ...thinned(tab.steps, tab[name], 60), look: "main" });
  const bothOf = (name) => (noted(name) ? [fine(name, "quiet"), smooth(name)] : []);
  function checked(name) {
    const checks = valid.filter((check) => typeof check[name] === "number");
    const [x, y] = [checks.map((check) => check.step), checks.map((check) => check[name])];
    return { name: `validation ${spaced(name)}`, x, y, look: "dots" };
  }
  function measured(name) {
    const line = checked(name);
    const once = line.x.length === 1 && note(`At step ${line.x[0]} it was ${told(line.y[0])}.`);
    return figure(`Validation: ${spaced(name)}`, null, once || overSteps(name, [line]));
  }
  const losses = [...bothOf("loss"), checked("loss")].filter((line) => line.x.length);
  const says = "Pale: every step. Line: the mean of neighbours. Dots: on data that was held out.";
  const measures = new Set(valid.flatMap((check) => Object.keys(check)));
  const others = [...measures].filter((name) => !["step", "loss"].includes(name));
  const figures = others.map(measured);
  const zero = { fromZero: true };
  if (noted("norm")) figures.push(figure("Norm of the gradient", null, overSteps("norm", bothOf("norm"), zero)));
  if (noted("rate")) figures.push(figure("Learning rate", null, overSteps("rate", [fine("rate", "main")], zero)));
  place.append(figure("Loss", says, overSteps("loss", losses, { height: 280 })), box("multiples", figures));
  const parts = Object.entries(tab.layers ?? {});
  if (parts.length) place.append(gradientMap(parts, tab.steps));
}
