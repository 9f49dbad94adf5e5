/* Training: loss, learning rate and evaluations over the steps, and the gradient norm of every module. */

/** Means of consecutive values, at most `count` of them. */
function downsample(x, y, count) {
  const wide = Math.ceil(x.length / count);
  const runs = range(Math.ceil(x.length / wide)).map((i) => [i * wide, Math.min(x.length, (i + 1) * wide)]);
  const mean = (values) => (values.length ? total(values) / values.length : null);
  const known = (run) => y.slice(...run).filter((value) => value !== null);
  return { x: runs.map(([, end]) => x[end - 1]), y: runs.map((run) => mean(known(run))) };
}

/** "body.encoder.0" is encoder 1. */
function moduleName(path) {
  const numbered = path.replace(/^body\./, "").replace(/\.(\d+)$/, (_, i) => ` ${Number(i) + 1}`);
  return numbered.replaceAll("_", " ");
}

/** Gradient norms span orders of magnitude, so the map has a logarithmic scale. */
function gradientMap(modules, steps) {
  const values = modules.flatMap(([, row]) => row);
  const most = largest(values) || 1;
  const least = Math.max(most / 1e4, smallest(values.filter((x) => x > 0)));
  const share = (x) => Math.log(Math.max(x, least) / least) / (Math.log(most / least) || 1);
  const colour = (along) => heatColour(along ** 2); // undoes the square root of the colour map
  const pointed = readout();
  const map = largeMap({
    label: "gradient norm: rows are modules, columns are steps",
    rows: modules.length,
    columns: steps.length,
    colour: (i) => colour(share(values[i])),
    rowNames: modules.map(([path]) => moduleName(path)),
    onPoint(row, column) {
      const [path, along] = modules[row];
      setReadout(pointed, `${moduleName(path)}, step ${steps[column]}: ${formatNumber(along[column])}`, along[column]);
    },
  });
  map.place.classList.add("long");
  map.pointAt(0, steps.length - 1);
  const how = "One row per module, one column per step. Logarithmic scale.";
  const legend = scale(formatNumber(least), formatNumber(most), colour);
  return figure("Gradient norm of each module", how, map.place, pointed, legend);
}

async function training(tab, place) {
  const valid = tab.valid ?? [];
  const spaced = (name) => name.replaceAll("_", " ");
  const integer = (x) => String(Math.round(x));
  const overSteps = (label, lines, more) => chart({ label, across: "step", axis: integer, lines, ...more });
  const logged = (name) => tab[name]?.some((x) => x !== null);
  const fine = (name, style) => ({ name, ...downsample(tab.steps, tab[name], 1200), style });
  const smooth = (name) => ({ name, ...downsample(tab.steps, tab[name], 60), style: "main" });
  const bothOf = (name) => (logged(name) ? [fine(name, "quiet"), smooth(name)] : []);
  function validationLine(name) {
    const evals = valid.filter((evaluation) => typeof evaluation[name] === "number");
    const [x, y] = [evals.map((evaluation) => evaluation.step), evals.map((evaluation) => evaluation[name])];
    return { name: `validation ${spaced(name)}`, x, y, style: "dots" };
  }
  function validationFigure(name) {
    const line = validationLine(name);
    const single = line.x.length === 1 && note(`${formatNumber(line.y[0])} at step ${line.x[0]}.`);
    return figure(`Validation: ${spaced(name)}`, null, single || overSteps(name, [line]));
  }
  const losses = [...bothOf("loss"), validationLine("loss")].filter((line) => line.x.length);
  const how = "Pale: every step. Line: moving mean. Dots: validation data.";
  const measures = new Set(valid.flatMap((evaluation) => Object.keys(evaluation)));
  const others = [...measures].filter((name) => !["step", "loss"].includes(name));
  const figures = others.map(validationFigure);
  const zero = { fromZero: true };
  if (logged("gradNorm")) figures.push(figure("Gradient norm", null, overSteps("norm", bothOf("gradNorm"), zero)));
  if (logged("lr")) figures.push(figure("Learning rate", null, overSteps("learning rate", [fine("lr", "main")], zero)));
  place.append(figure("Loss", how, overSteps("loss", losses, { height: 280 })), box("multiples", figures));
  const modules = Object.entries(tab.moduleNorms ?? {});
  if (modules.length) place.append(gradientMap(modules, tab.steps));
}
