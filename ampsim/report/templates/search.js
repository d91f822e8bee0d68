const show = (trial, event) => {
  const lines = [trial.text, ...data.objectives.map((name, place) => `${name}: ${trial.isPruned ? "at least " : ""}${trial.words[place]}`)];
  tell(lines, event);
};
// One objective against another, both logarithmic; with a single one, against the number of the trial.
const left = 84, right = 20, top = 12, bottom = 52;
const frame = (height, across, along) => {
  const width = Math.max(300, Math.min(640, root.clientWidth));
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${along} against ${across}` });
  drawn.append(svg("path", { class: "axis", d: `M${left} ${top}V${height - bottom}H${width - right}` }));
  drawn.append(svg("text", { x: left, y: height - 10, "font-weight": 600 }, `${across} → , ${along} ↑`));
  return [drawn, width];
};
const plot = (across, along) => {
  const value = (trial, place) => (place < 0 ? trial.trial + 1 : trial.values[place]);
  const known = data.trials.filter((trial) => value(trial, across) > 0 && value(trial, along) > 0);
  if (!known.length) return "";
  const name = (place) => (place < 0 ? "trial" : data.objectives[place]), height = 340;
  const [drawn, width] = frame(height, name(across), name(along));
  const scale = (place, from, to) => {
    const found = known.map((trial) => Math.log10(value(trial, place)));
    const low = Math.min(...found), high = Math.max(...found), room = (high - low || 1) * 0.05;
    return (one) => from + ((Math.log10(one) - low + room) / (high - low + 2 * room || 1)) * (to - from);
  };
  const px = scale(across, left, width - right), py = scale(along, height - bottom, top);
  const word = (trial, place) => (place < 0 ? String(trial.trial) : trial.words[place]);
  const ends = (place) => [...known].sort((a, b) => value(a, place) - value(b, place)).filter((_, at, all) => at === 0 || at === all.length - 1);
  for (const trial of ends(across)) drawn.append(svg("text", { x: px(value(trial, across)), y: height - bottom + 18, "text-anchor": "middle" }, word(trial, across)));
  for (const trial of ends(along)) drawn.append(svg("text", { x: left - 6, y: py(value(trial, along)) + 4, "text-anchor": "end" }, word(trial, along)));
  if (data.objectives.length === 2) {
    const front = known.filter((trial) => trial.isPareto).sort((a, b) => value(a, across) - value(b, across));
    drawn.append(svg("path", { class: "front", d: front.map((trial, at) => (at ? `H${px(value(trial, across))}V${py(value(trial, along))}` : `M${px(value(trial, across))} ${py(value(trial, along))}`)).join("") }));
  }
  for (const trial of [...known].sort((a, b) => a.isPareto - b.isPareto)) {
    const point = svg("circle", { cx: px(value(trial, across)), cy: py(value(trial, along)), r: 5, class: trial.isPareto ? "pareto" : trial.isPruned ? "pruned" : "" });
    point.addEventListener("pointermove", (event) => show(trial, event));
    point.addEventListener("pointerleave", () => { tip.hidden = true; });
    drawn.append(point);
  }
  return drawn;
};
const pairs = data.objectives.length === 1 ? [[-1, 0]] : data.objectives.slice(1).map((_, place) => [0, place + 1]);
// What is dominated after each trial, of each sampler.
const grown = () => {
  const samplers = Object.entries(data.volumes), count = Math.max(...samplers.map(([, of]) => of.length));
  const all = samplers.flatMap(([, of]) => of), least = Math.min(...all), most = Math.max(...all), height = 200;
  if (!(most > least)) return "";
  const [drawn, width] = frame(height, "trials", "volume dominated");
  const px = (at) => left + (at / count) * (width - right - left), py = (volume) => height - bottom - ((volume - least) / (most - least)) * (height - bottom - top);
  drawn.append(svg("text", { x: px(count), y: height - bottom + 18, "text-anchor": "end" }, String(count)));
  for (const end of [least, most]) drawn.append(svg("text", { x: left - 6, y: py(end) + 4, "text-anchor": "end" }, end.toPrecision(4)));
  samplers.forEach(([name, of], place) => {
    drawn.append(svg("path", { class: place ? "grown other" : "grown", d: `M${px(0)} ${py(of[0])}` + of.map((one, at) => `V${py(one)}H${px(at + 1)}`).join("") }));
    drawn.append(svg("text", { x: width - right, y: py(of.at(-1)) + (place ? 30 : 16), "text-anchor": "end" }, `${name}${place ? " (thin)" : ""}: ${of.at(-1).toPrecision(4)}`));
  });
  return drawn;
};
part("plots").replaceChildren(...pairs.map(([across, along]) => plot(across, along)), grown());
