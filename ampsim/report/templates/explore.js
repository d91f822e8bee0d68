const TIME = 0, LOW = 1, HIGH = 2, BASIS = 3, DOUBT = 4, FIRST = 5, STANDING = 6, NOTE = 7, LEARNING = 8;
const DOUBTFUL = 0.1;
const counts = data.keys.map((key) => key.values.length);
const several = data.keys.map((_, place) => place).filter((place) => counts[place] > 1);
const state = { x: several[0] ?? 0, y: several[1] ?? -1, at: counts.map(() => 0), learner: -1 }; // -1 colours who is first
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "var(--f332288, #332288)", "#999933"];

const index = (at) => at.reduce((sum, one, place) => sum * counts[place] + one, 0);
const seconds = (value) => {
  if (value === null) return "not reached";
  const rounded = Number(value.toPrecision(3)); // 0.9996 ms are 1 ms, not 1000 µs
  for (const [unit, name] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"], [1e-12, "ps"]]) {
    if (rounded >= unit || unit === 1e-12) return `${Number((value / unit).toPrecision(3))} ${name}`;
  }
};
const digits = (value, count) => (value < 10 ** count - 0.5 ? value.toPrecision(count) : value.toFixed(0)); // without an exponent
const where = (at) => data.keys.map((key, place) => key.words[at[place]]).join(", ");
const lightness = (ratio) => 0.25 + 0.75 * Math.min(Math.log(ratio) / Math.log(4), 1);

// What a point says: the winner, its lead over the next, and on what that rests.
const told = (at) => {
  const cells = data.points[index(at)];
  const best = cells.findIndex((cell) => cell[FIRST]);
  const times = cells.map((cell) => cell[TIME]).filter((time) => time !== null).sort((a, b) => a - b);
  const lead = times.length > 1 ? times[1] / times[0] : null;
  const kinds = new Set(cells.map((cell) => cell[BASIS]));
  const isUnfit = cells.every((cell) => cell[BASIS] === "unfit");
  for (const kind of ["failed", "unfit"]) kinds.delete(kind); // nobody trains it
  const basis = isUnfit ? "unfit" : kinds.has(null) || !kinds.size ? "unknown" : kinds.has("predicted") ? "predicted"
    : kinds.has("shared") ? "shared" : "learned";
  const [doubt, standing] = best < 0 ? [null, null] : [cells[best][DOUBT], cells[best][STANDING]];
  return { cells, best, lead, basis, doubt, standing };
};
const SAID = { first: "is first", tie: "is ahead, a tie within 5 %", "too few seeds": "is ahead, with too few seeds to be sure" };
const lines = (at) => {
  const { cells, best, lead, doubt, standing } = told(at);
  const found = [where(at)];
  data.methods.forEach((method, place) => {
    const [time, low, high, basis] = cells[place], note = cells[place][NOTE];
    const ends = low === null && high === null ? "" : ` [${low === null ? "?" : seconds(low)} to ${high === null ? "not reached" : seconds(high)}]`;
    const ill = { null: "unknown", failed: "cannot be run", unfit: "does not fit" }[basis];
    found.push(`${method.name}: ${ill ?? `${seconds(time)}${ends}, ${basis}`}${note ? `${ill ? ": " : "; "}${note}` : ""}`);
  });
  if (best >= 0) {
    const percent = 100 * doubt;
    const how = lead === null ? "" : `, ${digits(lead, 3)} times as soon as the next`;
    found.push(`${data.methods[best].name} ${SAID[standing] ?? "is predicted to be ahead"}${how}; probability of another ${percent < 0.1 ? "< 0.1" : digits(percent, 2)} %`);
  }
  return found;
};
const say = (at) => { part("note").textContent = lines(at).join(" · "); };
const show = (at, event) => tell(lines(at), event);

// The logarithm of the second method's time over the first one's; null where one is not known.
const balance = (at) => {
  const [one, two] = data.points[index(at)];
  return data.methods.length === 2 && one[TIME] && two[TIME] ? Math.log(two[TIME] / one[TIME]) : null;
};

// Where the balance is 0 between the middles of four neighbouring cells: marching squares.
const equalTime = (value, columns, rows, place) => {
  const pieces = [];
  for (let row = 0; row + 1 < rows; row++) for (let column = 0; column + 1 < columns; column++) {
    const corners = [[column, row], [column + 1, row], [column + 1, row + 1], [column, row + 1]];
    const values = corners.map(([x, y]) => value(x, y));
    if (values.some((one) => one === null)) continue;
    const ends = [];
    for (let side = 0; side < 4; side++) {
      const [from, to] = [side, (side + 1) % 4];
      if ((values[from] > 0) === (values[to] > 0)) continue;
      const share = values[from] / (values[from] - values[to]);
      ends.push(place(...[0, 1].map((axis) => corners[from][axis] * (1 - share) + corners[to][axis] * share)));
    }
    for (let end = 0; end + 1 < ends.length; end += 2) pieces.push(`M${ends[end]}L${ends[end + 1]}`);
  }
  return pieces.join("");
};

// What fills a cell of which nobody is first for sure.
const stripes = ({ colour }, method) => {
  const turned = { id: `ahead-${method}`, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
  return svg("pattern", turned, svg("rect", { width: 4, height: 7, fill: colour }));
};

const panel = (fixed) => {
  const columns = counts[state.x], rows = state.y < 0 ? 1 : counts[state.y];
  const left = state.y < 0 ? 10 : 92, size = Math.max(22, Math.min(64, 440 / columns)), top = 8;
  const width = left + columns * size + 12, height = top + rows * size + 66;
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "Map of who is first" });
  drawn.append(svg("defs", {}, ...data.methods.map(stripes)));
  const place = (x, y) => [left + (x + 0.5) * size, top + (rows - 1 - y + 0.5) * size];
  const at = (x, y) => fixed.map((one, key) => (key === state.x ? x : key === state.y ? y : one));
  for (let y = 0; y < rows; y++) for (let x = 0; x < columns; x++) {
    const here = at(x, y), { best, lead, basis, doubt, standing } = told(here), [cx, cy] = place(x, y);
    const cell = svg("rect", {
      class: `cell cell-${index(here)}`, x: cx - size / 2, y: cy - size / 2, width: size, height: size, tabindex: 0, role: "button",
      "aria-label": lines(here).join(", "), fill: best < 0 ? "var(--idle)" : standing === "first" ? data.methods[best].colour : `url(#ahead-${best})`,
      "fill-opacity": best < 0 ? 1 : lead === null ? 0.5 : lightness(lead),
    });
    const learning = state.learner < 0 ? undefined : data.points[index(here)][state.learner][LEARNING];
    if (learning !== undefined) {
      cell.setAttribute("fill", learning === null ? "var(--idle)" : COLOURS[(learning - 1) % COLOURS.length]);
      cell.setAttribute("fill-opacity", 0.6);
    }
    cell.addEventListener("pointermove", (event) => show(here, event));
    cell.addEventListener("pointerleave", () => { tip.hidden = true; });
    cell.addEventListener("focus", () => say(here));
    const choose = () => { state.at = here; draw(); };
    cell.addEventListener("click", choose);
    cell.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); part(`cell-${index(here)}`).focus(); } });
    drawn.append(cell);
    if (learning) drawn.append(svg("text", { class: "mark", x: cx, y: cy + 4, "text-anchor": "middle" }, learning));
    const r = Math.min(4, size / 7), ring = { class: "mark", cx, cy, r, stroke: "var(--ground)", "stroke-width": 1.6 };
    const isMarked = learning === undefined; // a number has no room beside a mark
    if (isMarked && basis === "learned") drawn.append(svg("circle", { ...ring, fill: "var(--ink)" }));
    if (isMarked && basis === "shared") drawn.append(svg("circle", { ...ring, fill: "none", stroke: "var(--ink)" }));
    if (basis === "unfit") drawn.append(svg("text", { class: "mark", x: cx, y: cy + 4, "text-anchor": "middle" }, "×"));
    if (isMarked && basis === "predicted" && doubt !== null && doubt > DOUBTFUL) {
      drawn.append(svg("text", { class: "mark", x: cx, y: cy + 4, "text-anchor": "middle", "font-weight": 700 }, "?"));
    }
    if (index(here) === index(state.at)) {
      drawn.append(svg("rect", { class: "chosen", x: cx - size / 2 + 2, y: cy - size / 2 + 2, width: size - 4, height: size - 4 }));
    }
  }
  drawn.append(svg("path", { class: "equal", d: equalTime((x, y) => balance(at(x, y)), columns, rows, place) }));
  const skip = Math.ceil(58 / size);
  data.keys[state.x].ticks.forEach((word, x) => {
    if (x % skip === 0) drawn.append(svg("text", { x: place(x, 0)[0], y: top + rows * size + 18, "text-anchor": "middle" }, word));
  });
  if (state.y >= 0) data.keys[state.y].ticks.forEach((word, y) => {
    drawn.append(svg("text", { x: left - 6, y: place(0, y)[1] + 4, "text-anchor": "end" }, word));
  });
  const under = state.y < 0 ? [data.keys[state.x].name] : [`${data.keys[state.x].name} →`, `${data.keys[state.y].name} ↑`];
  under.forEach((name, line) => drawn.append(svg("text", { x: 6, y: top + rows * size + 40 + 17 * line, "font-weight": 600 }, name)));
  return drawn;
};

const panels = () => {
  const others = several.filter((place) => place !== state.x && place !== state.y);
  const spread = others.find((place) => counts[place] <= 8);
  const each = spread === undefined ? [state.at] : data.keys[spread].values.map((_, one) => state.at.map((old, place) => (place === spread ? one : old)));
  part("panels").replaceChildren(...each.map((fixed) => {
    const rest = others.map((place) => data.keys[place].words[fixed[place]]).join(", ");
    return html("figure", {}, html("figcaption", { textContent: rest }), panel(fixed));
  }));
  const tools = [chooser("horizontal", "x", several), chooser("vertical", "y", several)];
  for (const place of others) if (place !== spread) tools.push(values(place));
  part("tools").replaceChildren(...(several.length > 1 ? tools : []), colouring());
};
const options = (words, chosen) => words.map(([value, text]) => html("option", { value, textContent: text, selected: value === chosen }));
const chooser = (text, axis, places) => {
  const select = html("select", {}, ...options(places.map((place) => [place, data.keys[place].name]), state[axis]));
  select.addEventListener("change", () => {
    const other = axis === "x" ? "y" : "x", before = state[axis];
    state[axis] = Number(select.value);
    if (state[other] === state[axis]) state[other] = before;
    draw();
  });
  return html("label", {}, `${text} `, select);
};
const colouring = () => {
  const select = html("select", {}, ...options([[-1, "who is first"], ...data.methods.map(({ name }, place) => [place, `what ${name} learns`])], state.learner));
  select.addEventListener("change", () => { state.learner = Number(select.value); draw(); });
  return html("label", {}, "colour ", select);
};
const values = (place) => {
  const select = html("select", {}, ...options(data.keys[place].words.map((word, one) => [one, word]), state.at[place]));
  select.addEventListener("change", () => { state.at[place] = Number(select.value); draw(); });
  return html("label", {}, `${data.keys[place].name} `, select);
};

const item = (swatch, text) => html("li", {}, swatch, text);
const coloured = (colour, text) => {
  const swatch = html("span", { className: "swatch" });
  swatch.style.background = colour;
  return item(swatch, text);
};
const swatches = (pairs) => html("ul", { className: "legend" }, ...pairs.map(([text, colour]) => coloured(colour, text)));

// A plot over a logarithmic axis of values; series have points [x, y, low, high, isFilled, isFirst], and lines begin where one is the first.
const plot = (series, { label, ticksX, horizontal, isJoined, nothing }) => {
  const all = series.flatMap((one) => one.points);
  const ys = all.flatMap(([, y, low, high]) => [y, low ?? y, high ?? y]).filter((y) => y > 0);
  if (!all.length || !ys.length) return html("p", { className: "faint", textContent: nothing });
  const width = Math.max(300, Math.min(640, root.clientWidth)), height = 300, left = 70, right = 34, top = 12, bottom = 52;
  const span = (found, least) => {
    const low = Math.min(...found), high = Math.max(...found), pad = low < high ? Math.max(least - high + low, 0) / 2 : 0.5;
    return [low - pad, high + pad];
  };
  const [x0, x1] = span([...all, ...ticksX].map(([x]) => x), 0), [y0, y1] = span(ys.map(Math.log10), 0.1); // no two ticks have one word
  const px = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
  const py = (y) => height - bottom - ((Math.log10(y) - y0) / (y1 - y0)) * (height - top - bottom);
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  const step = Math.max(1, Math.ceil((y1 - y0) / 4));
  let ticks = [];
  for (let power = Math.ceil(y0); power <= y1; power += step) ticks.push(10 ** power);
  if (ticks.length < 2) ticks = [10 ** y0, 10 ** ((y0 + y1) / 2), 10 ** y1];
  for (const tick of ticks) {
    drawn.append(svg("line", { class: "rule", x1: left, x2: width - right, y1: py(tick), y2: py(tick) }));
    drawn.append(svg("text", { x: left - 6, y: py(tick) + 4, "text-anchor": "end" }, horizontal.words(tick)));
  }
  const skip = Math.ceil(ticksX.length / (width / 90));
  ticksX.forEach(([x, word], place) => {
    if (place % skip === 0) drawn.append(svg("text", { x: px(x), y: height - bottom + 18, "text-anchor": "middle" }, word));
  });
  drawn.append(svg("path", { class: "axis", d: `M${left} ${top}V${height - bottom}H${width - right}` }));
  drawn.append(svg("text", { x: left, y: height - 10, "font-weight": 600 }, horizontal.name));
  if (horizontal.line) drawn.append(svg("line", { class: "equal", x1: left, x2: width - right, y1: py(horizontal.line), y2: py(horizontal.line) }));
  for (const { colour, points, aside = 0 } of series) {
    const path = points.map(([x, y, , , , isFirst]) => `${isFirst ? "M" : "L"}${px(x) + aside} ${py(y)}`).join("");
    if (isJoined) drawn.append(svg("path", { d: path, fill: "none", stroke: colour, "stroke-width": 1.6 }));
    for (const [x, y, low, high, isFilled] of points) {
      const cx = px(x) + aside;
      if (low || high) drawn.append(svg("line", { x1: cx, x2: cx, y1: py(low ?? 10 ** y0), y2: high ? py(high) : 0, stroke: colour, "stroke-width": 1.4 }));
      drawn.append(svg("circle", { cx, cy: py(y), r: 4.5, stroke: colour, "stroke-width": 1.6, fill: isFilled ? colour : "var(--ground)" }));
    }
  }
  return drawn;
};
const positions = (key) => {
  const numbers = key.values.every((one) => typeof one === "number" && one > 0);
  return key.values.map((one, place) => (numbers ? Math.log10(one) : place));
};
const slice = () => {
  const key = data.keys[state.x], across = positions(key);
  const along = across.map((_, place) => data.points[index(state.at.map((one, other) => (other === state.x ? place : one)))]);
  const isOpen = along.flat().some((cell) => cell[BASIS] === null);
  const series = data.methods.map(({ colour }, method) => ({
    colour,
    aside: 6 * (method - (data.methods.length - 1) / 2), // so that equal times are seen apart
    points: across.map((x, place) => [x, along[place][method]])
      .map(([x, cell], place, all) => [x, cell[TIME], cell[LOW], cell[HIGH], cell[BASIS] !== "predicted", !(all[place - 1]?.[1][TIME] > 0)])
      .filter(([, time]) => time !== null),
  }));
  const rest = several.filter((place) => place !== state.x).map((place) => data.keys[place].words[state.at[place]]).join(", ");
  part("slice").replaceChildren(html("p", { className: "faint", textContent: rest }), swatches(data.methods.map(({ name, colour }) => [name, colour])), plot(series, {
    label: "Time to the target along a slice", ticksX: across.map((x, place) => [x, key.ticks[place]]),
    horizontal: { name: key.name, words: seconds }, isJoined: key.values.every((one) => typeof one === "number"),
    nothing: isOpen ? "No time is known along this line." : "Nobody is known to reach the target along this line.",
  }));
};

// Rates times c and latencies over c learn the same, and take 1/c of the time: often only their product matters.
const product = () => {
  const latency = data.keys.findIndex((key) => key.name === "latency_s"), rate = data.keys.findIndex((key) => key.name === "device.flop_per_s");
  if (latency < 0 || rate < 0 || data.methods.length !== 2) return;
  const third = several.find((place) => place !== latency && place !== rate);
  const series = (third === undefined ? [0] : data.keys[third].values).map((_, one) => ({ colour: COLOURS[one % COLOURS.length], points: [] }));
  const visit = (at, place) => {
    if (place === counts.length) {
      const found = balance(at), [l, r] = [data.keys[latency].values[at[latency]], data.keys[rate].values[at[rate]]];
      if (found !== null && l * r > 0) series[third === undefined ? 0 : at[third]].points.push([Math.log10(l * r), Math.exp(found), null, null, told(at).basis !== "predicted"]);
      return;
    }
    const fixed = place !== latency && place !== rate && place !== third;
    for (const one of fixed ? [state.at[place]] : Array(counts[place]).keys()) visit([...at, one], place + 1);
  };
  visit([], 0);
  if (!series.some((one) => one.points.length)) return part("product").replaceChildren();
  const powers = series.flatMap((one) => one.points.map(([x]) => Math.round(x)));
  const ticks = [...new Set(powers)].sort((a, b) => a - b).map((power) => [power, `1e${power}`]);
  const legend = third === undefined ? [] : [swatches(data.keys[third].words.map((word, one) => [word, series[one].colour]))];
  part("product").replaceChildren(
    html("h2", { textContent: "Latency × rate" }),
    html("p", { className: "faint", textContent: `Time of ${data.methods[1].name} over that of ${data.methods[0].name}, against the FLOP that a device does while a message is on its way. Where points of one colour lie on one curve, only this product matters.` }),
    ...legend,
    plot(series, { label: "Ratio of times against latency times rate", ticksX: ticks, horizontal: { name: "latency_s × flop_per_s, FLOP", words: (one) => `${Number(one.toPrecision(2))}×`, line: 1 }, isJoined: false }),
  );
};
const legend = () => {
  const found = state.learner < 0 ? data.methods.map(({ name, colour }) => coloured(colour, `${name} first; paler where it leads by less`))
    : [item("1 2 ", `cells with one number: ${data.methods[state.learner].name} learns the same in its first epoch`)];
  if (state.learner < 0) found.push(item(html("span", { className: "swatch striped" }), "ahead, not for sure"));
  const idle = data.points.filter((cells) => state.learner < 0 && !cells.some((cell) => cell[FIRST]));
  for (const [isOpen, text] of [[false, "nobody is known to reach the target"], [true, "it is open who is first: of a schedule no time is known"]]) {
    if (idle.some((cells) => cells.some((cell) => cell[BASIS] === null) === isOpen)) found.push(item(html("span", { className: "swatch idle" }), text));
  }
  if (data.methods.length === 2 && several.length > 1) found.push(item(html("span", { className: "swatch equal-time" }), "equal time"));
  if (state.learner < 0) found.push(item("● ", "all trained"), item("○ ", "learns the same as a trained cell"), item("? ", "predicted, another is ahead with more than 10 %"));
  if (data.points.some((cells) => cells.every((cell) => cell[BASIS] === "unfit"))) found.push(item("× ", "none fits"));
  part("legend").replaceChildren(...found);
};
const draw = () => { tip.hidden = true; legend(); panels(); slice(); product(); say(state.at); };
draw();
