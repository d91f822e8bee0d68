"use strict";
(() => {
  // ---- what is shown --------------------------------------------------------------------------
  const section = document.getElementById("gantt");
  const data = JSON.parse(document.getElementById("gantt-data").textContent);
  const TYPES = {
    start: Float64Array, end: Float64Array, flop: Float64Array, bytes: Float64Array,
    instance: Int32Array, staleness: Int32Array, node: Uint16Array, direction: Uint8Array, state: Uint32Array,
  };
  const SENT_TYPES = { start: Float64Array, end: Float64Array, bytes: Float64Array, from: Uint16Array, to: Uint16Array };
  const DIRECTIONS = data.directions.length;
  const ROWS = data.rows.length;
  const [WHOLE_START, WHOLE_END] = data.whole;
  const SHORTEST = Math.max((WHOLE_END - WHOLE_START) * 1e-9, Math.abs(WHOLE_END) * 1e-12);
  const PIXELS_PER_STEP = 2.5; // a row with less room for each step shows shares instead of steps
  const ARROWS_MAX = 400; // more in a chart hide what they join; of more, every second, third, ... is drawn
  const HALF = 0.42; // half a box, where rows are 1 apart

  const decode = (text, Type) => {
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return new Type(bytes.buffer);
  };
  const schedules = data.schedules.map((packed) => {
    const schedule = { name: packed.name, begins: packed.begins, gap: packed.gap, outages: packed.outages };
    for (const [name, Type] of Object.entries(TYPES)) schedule[name] = decode(packed[name], Type);
    const sent = {};
    for (const [name, Type] of Object.entries(SENT_TYPES)) sent[name] = decode(packed.sent[name], Type);
    sent.longest = sent.start.reduce((longest, start, i) => Math.max(longest, sent.end[i] - start), 0);
    schedule.sent = sent;
    return schedule;
  });
  const panels = [...section.querySelectorAll("figure canvas")].map((canvas, index) => ({
    canvas, schedule: schedules[index], followed: [], selected: -1,
  }));
  const axis = section.querySelector("canvas.axis");
  const part = (name) => section.querySelector(`[data-part="${name}"]`);
  const control = (name) => section.querySelector(`[data-do="${name}"]`);
  const note = part("note");
  const tip = part("tip");
  const view = { start: data.first[0], end: data.first[1] };
  const isWheelOurs = section.dataset.wheel === "always";
  let followed = null; // number of an instance
  let isPrinting = false;
  let hasTransfers = control("transfers") !== null;
  let layout = null;

  // Sums of time by direction before each step, made when shares are shown for the first time.
  const sums = (schedule) => {
    if (!schedule.sums) {
      const count = schedule.start.length;
      schedule.sums = Array.from({ length: DIRECTIONS }, () => new Float64Array(count + 1));
      for (let i = 0; i < count; i++) {
        for (let d = 0; d < DIRECTIONS; d++) schedule.sums[d][i + 1] = schedule.sums[d][i];
        schedule.sums[schedule.direction[i]][i + 1] += schedule.end[i] - schedule.start[i];
      }
    }
    return schedule.sums;
  };

  // ---- looking things up: steps of a row do not overlap, so both columns are sorted -----------
  const firstAbove = (column, value, low, high) => {
    while (low < high) {
      const middle = (low + high) >> 1;
      if (column[middle] > value) high = middle;
      else low = middle + 1;
    }
    return low;
  };
  const visible = (schedule, row, start, end) => {
    const low = firstAbove(schedule.end, start, schedule.begins[row], schedule.begins[row + 1]);
    return [low, firstAbove(schedule.start, end, low, schedule.begins[row + 1])];
  };
  const rowOf = (schedule, index) => firstAbove(schedule.begins, index, 0, ROWS + 1) - 1;
  const worked = (schedule, row, from, to) => {
    // Seconds spent in each direction between two times.
    const [low, high] = visible(schedule, row, from, to);
    const before = sums(schedule);
    const seconds = before.map((sum) => sum[high] - sum[low]);
    if (high > low) {
      seconds[schedule.direction[low]] -= Math.max(0, from - schedule.start[low]);
      seconds[schedule.direction[high - 1]] -= Math.max(0, schedule.end[high - 1] - to);
    }
    return seconds;
  };

  // ---- words ----------------------------------------------------------------------------------
  const digits = (value) => {
    const size = Math.abs(value);
    if (size > 0 && size < 0.9995) return value.toPrecision(3);
    return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
  };
  const fitting = (value, units) =>
    units.find(([f]) => Math.abs(value) >= f * 0.9995) || units[units.length - 1];
  const scaled = (value, units) => {
    if (value === 0) return `0 ${units[units.length - 1][1]}`;
    const [factor, unit] = fitting(value, units);
    return `${digits(value / factor)} ${unit}`;
  };
  const TIME = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"], [1e-12, "ps"]];
  const DECIMAL = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
  const seconds = (value) => (value === 0 ? "0 s" : scaled(value, TIME));
  const counted = (value, unit) =>
    value < 1000 ? `${value} ${unit}` : scaled(value, DECIMAL.map(([f, p]) => [f, p + unit]));
  const percent = (value) => `${digits(100 * value)} %`;
  const moment = (value) => {
    // A time with as many digits as tell neighbours apart in what is shown.
    const length = view.end - view.start;
    const [factor, unit] = fitting(length, TIME);
    const decimals = 3 + Math.max(0, -Math.floor(Math.log10(length / factor) + 1e-3));
    return `${(value / factor).toFixed(decimals)} ${unit}`;
  };
  const isInGap = (schedule, time) => schedule.gap && time >= schedule.gap[0] && time <= schedule.gap[1];
  const rowName = (row) => data.rows[row] + (data.devices[row] && ` (${data.devices[row]})`);
  const described = (schedule, index) => {
    const instance = schedule.instance[index];
    const state = data.states[schedule.state[index]];
    const lines = [
      `${data.nodes[schedule.node[index]]}, ${data.directions[schedule.direction[index]].label}`,
      (instance >= 0 ? `instance ${instance}` : "of no single instance") + (state && `, ${state}`),
      `${rowName(rowOf(schedule, index))}, ${schedule.name}`,
      `${moment(schedule.start[index])} to ${moment(schedule.end[index])}, takes ` +
        seconds(schedule.end[index] - schedule.start[index]),
      `${counted(schedule.flop[index], "FLOP")}, ${counted(schedule.bytes[index], "B")}`,
    ];
    if (schedule.staleness[index] >= 0) {
      lines.push(`its gradient is ${schedule.staleness[index]} update${schedule.staleness[index] === 1 ? "" : "s"} stale`);
    }
    return lines;
  };

  // ---- drawing --------------------------------------------------------------------------------
  const colours = () => {
    if (isPrinting) return { ink: "#000000", faint: "#444444", line: "#bbbbbb", idle: "#e9ecef", mark: "#c2185b", way: data.transfer, ground: "#ffffff" };
    const style = getComputedStyle(document.documentElement);
    return Object.fromEntries(
      ["ink", "faint", "line", "idle", "mark", "way", "ground"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]),
    );
  };
  const FONT = 'px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
  const measure = () => {
    const width = Math.max(200, section.clientWidth);
    const rowHeight = ROWS <= 20 ? 24 : ROWS <= 48 ? 16 : ROWS <= 100 ? 10 : 6;
    const isNarrow = width < 600;
    const names = isNarrow ? data.workers.map(String) : data.rows;
    const context = axis.getContext("2d");
    context.font = `12${FONT}`;
    const widest = Math.max(10, ...names.map((name) => context.measureText(name).width));
    const named = isNarrow ? [] : data.groups.map(([name]) => context.measureText(name).width);
    const bracket = data.groups.length ? Math.ceil(Math.min(Math.max(0, ...named), width / 6)) + 14 : 0;
    const gutter = Math.ceil(Math.min(widest, width / 3)) + 10 + bracket;
    return { width, rowHeight, names, gutter, bracket, isNarrow, plot: width - gutter - 8 };
  };
  const prepare = (canvas, height) => {
    const ratio = Math.min(window.devicePixelRatio || 1, 2, 16000 / height);
    const [wide, high] = [Math.round(layout.width * ratio), Math.round(height * ratio)];
    if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, layout.width, height);
    return context;
  };
  const x = (time) => layout.gutter + ((time - view.start) / (view.end - view.start)) * layout.plot;
  const timeAt = (place) => view.start + ((place - layout.gutter) / layout.plot) * (view.end - view.start);

  const patterns = data.directions.map((look, index) => {
    // The second cue beside colour, as in the static charts: stripes backward, dots in updates.
    if (index === 0) return null;
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const context = tile.getContext("2d");
    context.strokeStyle = context.fillStyle = look.hatch;
    if (index === 1) {
      context.lineWidth = 1.1;
      for (const shift of [-6, 0, 6]) {
        context.moveTo(shift - 1, 7);
        context.lineTo(shift + 7, -1);
      }
      context.stroke();
    } else {
      context.fillRect(1, 1, 1.6, 1.6);
      context.fillRect(4, 4, 1.6, 1.6);
    }
    return axis.getContext("2d").createPattern(tile, "repeat");
  });

  const drawGap = (context, schedule, colour) => {
    // Time that the run went on and of which no step is here: neither busy nor idle.
    if (!schedule.gap) return;
    const [left, right] = [Math.max(layout.gutter, x(schedule.gap[0])), Math.min(layout.gutter + layout.plot, x(schedule.gap[1]))];
    if (left >= right) return;
    context.save();
    context.beginPath();
    for (let row = 0; row < ROWS; row++) context.rect(left, (row + 0.5 - HALF) * layout.rowHeight, right - left, 2 * HALF * layout.rowHeight);
    context.clip();
    context.fillStyle = colour.ground;
    context.fillRect(left, 0, right - left, ROWS * layout.rowHeight);
    context.strokeStyle = colour.line;
    context.lineWidth = 1;
    const high = ROWS * layout.rowHeight;
    context.beginPath();
    for (let from = left - high; from < right; from += 6) {
      context.moveTo(from, 0);
      context.lineTo(from + high, high);
      context.moveTo(from, high);
      context.lineTo(from + high, 0);
    }
    context.stroke();
    context.restore();
  };
  const drawOutages = (context, schedule, colour) => {
    // Times in which a device is down, striped, or crossed where updates are lost, copies its weights, lined,
    // is slow, dotted, or waits for others, ruled; behind the boxes.
    const high = layout.rowHeight;
    for (const [row, start, end, look] of schedule.outages) {
      const [left, right] = [Math.max(layout.gutter, x(start)), Math.min(layout.gutter + layout.plot, x(end))];
      if (left >= right) continue;
      context.save();
      context.beginPath();
      context.rect(left, row * high, right - left, high);
      context.clip();
      context.fillStyle = colour.ground;
      context.fillRect(left, row * high, right - left, high);
      context.strokeStyle = context.fillStyle = colour.faint;
      context.lineWidth = 1;
      context.beginPath();
      const first = left - high - (left - high) % 5;
      for (let from = first; from < right; from += 5) {
        if (look === "waits") {
          context.moveTo(from, row * high);
          context.lineTo(from, (row + 1) * high);
        } else if (look === "down" || look === "lost") {
          context.moveTo(from, row * high);
          context.lineTo(from + high, (row + 1) * high);
          if (look === "lost") {
            context.moveTo(from + high, row * high);
            context.lineTo(from, (row + 1) * high);
          }
        } else if (look === "checkpoint") {
          for (let down = 2; down < high; down += 5) {
            context.moveTo(from, row * high + down);
            context.lineTo(from + 5, row * high + down);
          }
        } else {
          for (let down = 2; down < high; down += 5) context.rect(from, row * high + down, 1.2, 1.2);
        }
      }
      if (look === "slow") context.fill();
      else context.stroke();
      context.restore();
    }
  };
  const isCrowded = (schedule) => {
    for (let row = 0; row < ROWS; row++) {
      const [low, high] = visible(schedule, row, view.start, view.end);
      if ((high - low) * PIXELS_PER_STEP > layout.plot) return true;
    }
    return false;
  };

  const drawSteps = (context, schedule) => {
    const boxes = Array.from({ length: DIRECTIONS }, () => []);
    for (let row = 0; row < ROWS; row++) {
      const [low, high] = visible(schedule, row, view.start, view.end);
      for (let i = low; i < high; i++) boxes[schedule.direction[i]].push(i, row);
    }
    boxes.forEach((pairs, direction) => drawBoxes(context, schedule, pairs, direction));
  };
  const drawBoxes = (context, schedule, pairs, direction) => {
    const look = data.directions[direction];
    const height = 2 * HALF * layout.rowHeight;
    const right = layout.gutter + layout.plot;
    const numbers = [];
    const wide = [];
    context.fillStyle = look.fill;
    for (let k = 0; k < pairs.length; k += 2) {
      const [index, row] = [pairs[k], pairs[k + 1]];
      const from = Math.max(layout.gutter, x(schedule.start[index]));
      const width = Math.min(right, x(schedule.end[index])) - from;
      const top = (row + 0.5 - HALF) * layout.rowHeight;
      context.fillRect(from, top, Math.max(width, 0.6), height);
      if (width >= 3) wide.push(from, top, width);
      if (width >= 9 && context.globalAlpha === 1 && layout.rowHeight >= 14 && schedule.instance[index] >= 0) numbers.push(index, from, top, width);
    }
    if (patterns[direction]) {
      context.fillStyle = patterns[direction];
      for (let k = 0; k < wide.length; k += 3) if (wide[k + 2] >= 5) context.fillRect(wide[k], wide[k + 1], wide[k + 2], height);
    }
    context.strokeStyle = look.hatch;
    context.lineWidth = 0.7;
    for (let k = 0; k < wide.length; k += 3) context.strokeRect(wide[k] + 0.35, wide[k + 1] + 0.35, wide[k + 2] - 0.7, height - 0.7);
    drawNumbers(context, schedule, numbers, look);
  };
  const drawNumbers = (context, schedule, numbers, look) => {
    context.font = `${layout.rowHeight >= 20 ? 11 : 10}${FONT}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let k = 0; k < numbers.length; k += 4) {
      const text = String(schedule.instance[numbers[k]]);
      const wide = context.measureText(text).width;
      if (wide + 4 > numbers[k + 3]) continue;
      const [middle, height] = [numbers[k + 1] + numbers[k + 3] / 2, numbers[k + 2] + HALF * layout.rowHeight];
      context.fillStyle = look.fill;
      context.fillRect(middle - wide / 2 - 1.5, height - 6, wide + 3, 12);
      context.fillStyle = look.ink;
      context.fillText(text, middle, height + 0.5);
    }
  };

  const drawShares = (context, schedule) => {
    const column = Math.max(1, Math.ceil((ROWS * layout.plot) / 150000));
    const height = 2 * HALF * layout.rowHeight;
    for (let row = 0; row < ROWS; row++) {
      const bottom = (row + 0.5 + HALF) * layout.rowHeight;
      for (let left = layout.gutter; left < layout.gutter + layout.plot; left += column) {
        const [from, to] = [timeAt(left), timeAt(Math.min(left + column, layout.gutter + layout.plot))];
        const spent = worked(schedule, row, from, to);
        let base = bottom;
        for (let d = 0; d < DIRECTIONS; d++) {
          const high = (spent[d] / (to - from)) * height;
          if (high < 0.02) continue;
          context.fillStyle = data.directions[d].fill;
          context.fillRect(left, base - high, column, high);
          base -= high;
        }
      }
    }
  };

  const drawFollowed = (context, panel, colour) => {
    const { schedule } = panel;
    const [left, right] = [layout.gutter, layout.gutter + layout.plot];
    context.save();
    context.beginPath();
    context.rect(left, 0, layout.plot, ROWS * layout.rowHeight);
    context.clip();
    const boxes = Array.from({ length: DIRECTIONS }, () => []);
    for (const index of panel.followed) {
      if (x(schedule.end[index]) >= left && x(schedule.start[index]) <= right) boxes[schedule.direction[index]].push(index, rowOf(schedule, index));
    }
    boxes.forEach((pairs, direction) => drawBoxes(context, schedule, pairs, direction));
    context.strokeStyle = colour.mark;
    context.lineWidth = 1.4;
    context.beginPath();
    let before = -1;
    for (const index of panel.followed) {
      const middle = (rowOf(schedule, index) + 0.5) * layout.rowHeight;
      if (before >= 0) {
        context.moveTo(x(schedule.end[before]), (rowOf(schedule, before) + 0.5) * layout.rowHeight);
        context.lineTo(x(schedule.start[index]), middle);
      }
      before = index;
    }
    context.stroke();
    for (const index of panel.followed) {
      const [from, to] = [x(schedule.start[index]), x(schedule.end[index])];
      if (to < left || from > right) continue;
      context.lineWidth = index === panel.selected ? 3 : 1.4;
      context.strokeRect(from, (rowOf(schedule, index) + 0.5 - HALF) * layout.rowHeight, Math.max(to - from, 1), 2 * HALF * layout.rowHeight);
    }
    context.restore();
  };

  const drawGroups = (context, colour) => {
    // A bracket for each kind of device, with its name where there is room.
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.lineWidth = 1;
    let until = -Infinity;
    for (const [name, first, last] of data.groups) {
      const [top, bottom] = [(first + 0.5 - HALF) * layout.rowHeight + 0.5, (last + 0.5 + HALF) * layout.rowHeight - 0.5];
      const [left, middle] = [layout.bracket - 6.5, (top + bottom) / 2];
      context.strokeStyle = colour.faint;
      context.beginPath();
      context.moveTo(left + 4, top);
      context.lineTo(left, top);
      context.lineTo(left, bottom);
      context.lineTo(left + 4, bottom);
      context.stroke();
      if (layout.isNarrow || middle - until < 13) continue;
      until = middle;
      context.fillStyle = colour.ink;
      context.fillText(name, left - 4, Math.max(7, middle), layout.bracket - 12);
    }
  };

  const drawTransfers = (context, panel, colour) => {
    // Thin arrows over the boxes, from the row that sends to the row that receives.
    const { sent } = panel.schedule;
    const low = firstAbove(sent.start, view.start - sent.longest, 0, sent.start.length);
    const high = firstAbove(sent.start, view.end, low, sent.start.length);
    const seen = [];
    for (let i = low; i < high; i++) if (sent.end[i] >= view.start) seen.push(i);
    panel.everyArrow = Math.max(1, Math.ceil(seen.length / ARROWS_MAX));
    context.save();
    context.beginPath();
    context.rect(layout.gutter, 0, layout.plot, ROWS * layout.rowHeight);
    context.clip();
    context.strokeStyle = context.fillStyle = colour.way;
    context.lineWidth = 0.9;
    context.globalAlpha *= 0.75;
    context.beginPath();
    const heads = new Path2D();
    for (const i of seen) {
      if (i % panel.everyArrow) continue; // the same ones whatever part is shown
      const down = Math.sign(sent.to[i] - sent.from[i]);
      const [x0, y0] = [x(sent.start[i]), (sent.from[i] + 0.5 + 0.2 * down) * layout.rowHeight];
      const [x1, y1] = [x(sent.end[i]), (sent.to[i] + 0.5 - 0.2 * down) * layout.rowHeight];
      context.moveTo(x0, y0);
      context.lineTo(x1, y1);
      const length = Math.hypot(x1 - x0, y1 - y0) || 1;
      const [along, across] = [[((x1 - x0) / length) * 6, ((y1 - y0) / length) * 6], [((y0 - y1) / length) * 2.2, ((x1 - x0) / length) * 2.2]];
      heads.moveTo(x1, y1);
      heads.lineTo(x1 - along[0] + across[0], y1 - along[1] + across[1]);
      heads.lineTo(x1 - along[0] - across[0], y1 - along[1] - across[1]);
      heads.closePath();
    }
    context.stroke();
    context.fill(heads);
    context.restore();
  };

  const drawPanel = (panel, colour) => {
    const height = ROWS * layout.rowHeight + (data.closing ? 20 : 2);
    const context = prepare(panel.canvas, height);
    context.font = `12${FONT}`;
    context.textBaseline = "middle";
    const every = Math.max(1, Math.ceil(13 / layout.rowHeight));
    for (let row = 0; row < ROWS; row++) {
      context.fillStyle = colour.idle;
      context.fillRect(layout.gutter, (row + 0.5 - HALF) * layout.rowHeight, layout.plot, 2 * HALF * layout.rowHeight);
      if (row % every) continue;
      context.textAlign = "right";
      context.fillStyle = colour.ink;
      const middle = Math.max(7, (row + 0.5) * layout.rowHeight); // the first name of low rows is not cut off
      context.fillText(layout.names[row], layout.gutter - 6, middle, layout.gutter - layout.bracket - 8);
    }
    drawOutages(context, panel.schedule, colour);
    drawGap(context, panel.schedule, colour);
    drawGroups(context, colour);
    if (data.closing) {
      context.textAlign = "left";
      context.fillStyle = colour.faint;
      context.fillText(data.closing, layout.gutter, height - 10);
    }
    panel.isShare = isCrowded(panel.schedule);
    context.globalAlpha = followed === null ? 1 : 0.28;
    if (panel.isShare) drawShares(context, panel.schedule);
    else drawSteps(context, panel.schedule);
    panel.everyArrow = 0; // none drawn
    if (hasTransfers && !panel.isShare && panel.schedule.sent.start.length) drawTransfers(context, panel, colour);
    context.globalAlpha = 1;
    if (followed !== null) drawFollowed(context, panel, colour);
    panel.height = height;
  };

  const drawAxis = (colour) => {
    const height = 42;
    const context = prepare(axis, height);
    const length = view.end - view.start;
    const [factor, unit] = fitting(length, TIME);
    const tens = 10 ** -Math.ceil(Math.log10(length));
    const origin = view.start > 1000 * length ? Math.floor(view.start * tens) / tens : 0; // else labels need too many digits
    const rough = (length / factor) * (70 / layout.plot);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    context.font = `12${FONT}`;
    context.textAlign = "center";
    context.textBaseline = "top";
    context.strokeStyle = colour.faint;
    context.fillStyle = colour.ink;
    context.beginPath();
    context.moveTo(layout.gutter, 0.5);
    context.lineTo(layout.gutter + layout.plot, 0.5);
    const first = Math.ceil((view.start - origin) / factor / step - 1e-9);
    for (let k = first; ; k++) {
      const place = x(origin + k * step * factor);
      if (place > layout.gutter + layout.plot + 0.5) break;
      context.moveTo(place, 0);
      context.lineTo(place, 5);
      const text = (k * step).toFixed(decimals);
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(place, layout.width - half - 1), 7);
    }
    context.stroke();
    const after = origin ? ` after ${Number(origin.toPrecision(15))} s` : "";
    context.fillStyle = colour.faint;
    context.fillText(`virtual time${after} (${unit})`, layout.gutter + layout.plot / 2, 25);
  };

  const draw = () => {
    layout = measure();
    const colour = colours();
    for (const panel of panels) drawPanel(panel, colour);
    drawAxis(colour);
    sayWhatIsShown();
    section.dataset.gutter = layout.gutter;
    section.dataset.start = view.start;
    section.dataset.end = view.end;
    section.dataset.arrows = panels.map((panel) => panel.everyArrow);
    section.dataset.shares = panels.some((panel) => panel.isShare);
  };
  let isAsked = false;
  const redraw = () => {
    if (isAsked) return;
    isAsked = true;
    requestAnimationFrame(() => {
      isAsked = false;
      draw();
    });
  };

  let said = "";
  const say = (text) => {
    if (text !== said) note.textContent = said = text;
  };
  const sayWhatIsShown = () => {
    const shares = panels.some((panel) => panel.isShare)
      ? "Steps are too many to be seen apart: each column shows the share of its time spent forward, backward and in updates, from the bottom up. Zoom in to see steps."
      : "";
    const fewest = Math.max(...panels.map((panel) => panel.everyArrow));
    const thinned = fewest > 1 ? `Transfers are too many to be seen: one in ${fewest} is drawn.` : "";
    say([sayFollowed(), shares, thinned].filter(Boolean).join(" "));
  };
  const sayFollowed = () => {
    if (followed === null) return "";
    const selected = panels.find((panel) => panel.selected >= 0);
    if (selected) return `${described(selected.schedule, selected.selected).join("; ")}.`;
    const words = panels.filter((panel) => panel.followed.length).map(({ schedule, followed: steps }) => {
      const last = steps.reduce((until, i) => Math.max(until, schedule.end[i]), 0);
      const served = steps.reduce((sum, i) => sum + schedule.end[i] - schedule.start[i], 0);
      return `${schedule.name}: ${steps.length} steps in ${seconds(last - schedule.start[steps[0]])}, service ${seconds(served)}`;
    });
    return words.length ? `Instance ${followed} – ${words.join("; ")}.` : `No step of instance ${followed} takes time in what this page holds.`;
  };

  // ---- moving ---------------------------------------------------------------------------------
  const show = (start, end) => {
    const length = Math.min(Math.max(end - start, SHORTEST), WHOLE_END - WHOLE_START);
    const from = Math.min(Math.max(start, WHOLE_START), WHOLE_END - length);
    [view.start, view.end] = [from, from + length];
    hideTip();
    redraw();
  };
  const zoom = (factor, centre = (view.start + view.end) / 2) =>
    show(centre - (centre - view.start) * factor, centre + (view.end - centre) * factor);
  const pan = (share) => {
    const shift = share * (view.end - view.start);
    show(view.start + shift, view.end + shift);
  };
  const follow = (instance) => {
    followed = Number.isInteger(instance) && instance >= 0 ? instance : null;
    for (const panel of panels) {
      const { schedule } = panel;
      panel.followed = [];
      panel.selected = -1;
      if (followed === null) continue;
      for (let i = 0; i < schedule.instance.length; i++) if (schedule.instance[i] === followed) panel.followed.push(i);
      panel.followed.sort((a, b) => schedule.start[a] - schedule.start[b] || a - b);
    }
    control("instance").value = followed === null ? "" : followed;
    section.dataset.followed = followed === null ? "" : followed;
    redraw();
  };
  const bringIntoView = () => {
    const isSeen = panels.some(({ schedule, followed: steps }) => steps.some((i) => schedule.end[i] >= view.start && schedule.start[i] <= view.end));
    const panel = panels.find(({ followed: steps }) => steps.length);
    if (isSeen || !panel) return;
    const from = panel.schedule.start[panel.followed[0]];
    const length = view.end - view.start;
    show(from - 0.1 * length, from + 0.9 * length);
  };
  const select = (panel, change) => {
    if (followed === null || !panel.followed.length) return;
    const [count, before] = [panel.followed.length, panel.followed.indexOf(panel.selected)];
    const place = before < 0 ? (change > 0 ? 0 : count - 1) : (before + change + count) % count;
    for (const other of panels) if (other !== panel) other.selected = -1;
    panel.selected = panel.followed[place];
    const middle = (panel.schedule.start[panel.selected] + panel.schedule.end[panel.selected]) / 2;
    if (middle < view.start || middle > view.end) {
      const half = (view.end - view.start) / 2;
      show(middle - half, middle + half);
    }
    redraw();
  };
  const actions = {
    in: () => zoom(0.5), out: () => zoom(2), left: () => pan(-0.25), right: () => pan(0.25),
    whole: () => show(WHOLE_START, WHOLE_END), first: () => show(...data.first), clear: () => follow(null),
  };
  for (const [name, action] of Object.entries(actions)) control(name).addEventListener("click", action);
  control("instance").addEventListener("input", (event) => {
    const text = event.target.value;
    follow(text === "" ? null : Number(text));
    bringIntoView();
  });
  if (hasTransfers) {
    control("transfers").addEventListener("change", (event) => {
      hasTransfers = event.target.checked;
      redraw();
    });
  }
  const KEYS = {
    "+": "in", "=": "in", "-": "out", _: "out", ArrowLeft: "left", ArrowRight: "right",
    0: "whole", Home: "whole", 1: "first", Escape: "clear",
  };

  // ---- pointing -------------------------------------------------------------------------------
  const stepAt = (panel, place) => {
    const row = Math.floor(place.y / layout.rowHeight);
    if (row < 0 || row >= ROWS || place.x < layout.gutter || place.x > layout.gutter + layout.plot) return null;
    const { schedule } = panel;
    const time = timeAt(place.x);
    const slack = ((view.end - view.start) / layout.plot) * 2; // a hairline can be met, too
    const [low, high] = visible(schedule, row, time - slack, time + slack);
    let best = -1;
    let nearest = Infinity;
    for (let i = low; i < high; i++) {
      const far = Math.max(schedule.start[i] - time, time - schedule.end[i], 0);
      if (far < nearest) [best, nearest] = [i, far];
    }
    return { row, time, index: best };
  };
  const hideTip = () => {
    tip.hidden = true;
  };
  const showTip = (panel, event) => {
    const found = stepAt(panel, { x: event.offsetX, y: event.offsetY });
    const lines = found && (panel.isShare ? shareLines(panel, found) : found.index >= 0 && described(panel.schedule, found.index));
    if (!lines) return hideTip();
    tip.replaceChildren(...lines.map((line, i) => {
      const element = document.createElement(i ? "div" : "b");
      element.textContent = line;
      return element;
    }));
    tip.hidden = false;
    const [wide, high] = [tip.offsetWidth, tip.offsetHeight];
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, document.documentElement.clientWidth - wide - 4))}px`;
    tip.style.top = `${event.clientY + 18 + high > window.innerHeight ? Math.max(4, event.clientY - high - 10) : event.clientY + 18}px`;
  };
  const shareLines = (panel, { row, time }) => {
    if (isInGap(panel.schedule, time)) return [`${rowName(row)}, ${panel.schedule.name}`, "not kept: only the beginning of the run is"];
    const half = ((view.end - view.start) / layout.plot) * 2;
    const spent = worked(panel.schedule, row, time - half, time + half);
    const shares = spent.map((value, d) => `${data.directions[d].label} ${percent(Math.max(0, value) / (2 * half))}`);
    return [`${rowName(row)}, ${panel.schedule.name}`, `around ${moment(time)}:`, shares.join(", ")];
  };

  const pointers = new Map();
  let drag = null;
  const grab = (panel, event) => {
    if (event.button) return;
    pointers.set(event.pointerId, event.offsetX);
    panel.canvas.setPointerCapture(event.pointerId);
    drag = { from: event.offsetX, start: view.start, end: view.end, moved: 0, isPart: event.shiftKey, places: [...pointers.values()] };
  };
  const move = (panel, event) => {
    if (!pointers.has(event.pointerId)) return showTip(panel, event);
    pointers.set(event.pointerId, event.offsetX);
    const length = drag.end - drag.start;
    drag.moved = Math.max(drag.moved, Math.abs(event.offsetX - drag.from));
    if (pointers.size === 2) {
      const places = [...pointers.values()];
      const apart = ([a, b]) => Math.max(20, Math.abs(a - b));
      const ratio = apart(drag.places) / apart(places);
      const held = drag.start + (((drag.places[0] + drag.places[1]) / 2 - layout.gutter) / layout.plot) * length;
      const start = held - (((places[0] + places[1]) / 2 - layout.gutter) / layout.plot) * length * ratio;
      show(start, start + length * ratio);
    } else if (drag.isPart) {
      draw();
      const context = panel.canvas.getContext("2d");
      context.fillStyle = "rgb(128 128 128 / 35%)";
      context.fillRect(Math.min(drag.from, event.offsetX), 0, Math.abs(event.offsetX - drag.from), panel.height);
    } else if (drag.moved > 3) {
      panel.canvas.classList.add("moving");
      const shift = ((drag.from - event.offsetX) / layout.plot) * length;
      show(drag.start + shift, drag.end + shift);
    }
  };
  const release = (panel, event) => {
    if (!pointers.delete(event.pointerId)) return;
    panel.canvas.classList.remove("moving");
    const place = { x: event.offsetX, y: event.offsetY };
    if (event.type === "pointerup" && drag.moved <= 3) {
      const found = stepAt(panel, place);
      const instance = found && found.index >= 0 ? panel.schedule.instance[found.index] : -1;
      follow(instance >= 0 && instance !== followed ? instance : null);
    } else if (drag.isPart && drag.moved > 3) {
      const times = [timeAt(drag.from), timeAt(place.x)];
      show(Math.min(...times), Math.max(...times));
    }
    drag = pointers.size ? { ...drag, from: [...pointers.values()][0], start: view.start, end: view.end, places: [...pointers.values()] } : null;
  };
  const wheel = (panel, event) => {
    // On a page with more than the charts the wheel scrolls, until a chart is clicked.
    const isMeant = isWheelOurs || event.ctrlKey || event.metaKey || document.activeElement === panel.canvas;
    if (!isMeant || event.offsetX < layout.gutter) return;
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(((event.deltaX || event.deltaY) * lines) / layout.plot);
    else zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY * lines * 0.002))), timeAt(event.offsetX));
  };
  for (const panel of panels) {
    const { canvas } = panel;
    canvas.addEventListener("pointerdown", (event) => grab(panel, event));
    canvas.addEventListener("pointermove", (event) => move(panel, event));
    canvas.addEventListener("pointerup", (event) => release(panel, event));
    canvas.addEventListener("pointercancel", (event) => release(panel, event));
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("wheel", (event) => wheel(panel, event), { passive: false });
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const key = event.key.toLowerCase();
      if (key === "n" || key === "p") select(panel, key === "n" ? 1 : -1);
      else if (KEYS[event.key]) actions[KEYS[event.key]]();
      else return;
      event.preventDefault();
    });
  }

  // ---- light, dark, paper ---------------------------------------------------------------------
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  const print = (begins) => () => {
    isPrinting = begins;
    draw();
  };
  addEventListener("beforeprint", print(true));
  addEventListener("afterprint", print(false));
  new ResizeObserver(redraw).observe(section);
  draw();
  section.dataset.ready = performance.now();
})();
