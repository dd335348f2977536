// The charts, all over rounds, by uPlot. They show one range of rounds and share one cursor. A range that was dragged
// over one chart is asked of the server at full resolution, and shown by all.

import { $, counted, get, nothing, turns } from "./dom.js";

const HEIGHT = 200;
const INTEGERS = [1, 2, 5].flatMap((each) => [...Array(9).keys()].map((power) => each * 10 ** power)).sort((a, b) => a - b);
const PHASES = { generate: "--green", share: "--violet", verify: "--orange", train: "--one" };
const COLOURS = ["--one", "--orange", "--green", "--violet", "--pink", "--teal", "--faint", "--bad"];
const SMOOTHED = 4; // points on either side that a point of the line is the mean of
const LANE = 26, LANES_MARGIN = 60;
const ALARMS = { "steps taken back": () => facts.taken_back, "learning alarm": () => facts.health_alarms };

const EVALUATIONS = {
  "held-out pass@1 (95 % interval)": ["--warn", () => facts.evaluations],
};

let range = null; // the rounds that are shown, or null for all
let points = []; // of the range
let refused = ""; // why the range that was asked for last is not shown
let facts = null; // the last facts of the node
const charts = new Map(); // by the id of the element

// A canvas needs the colour that a variable of the style sheet stands for now.
const probe = document.createElement("i");
document.body.append(probe);
function colour(name) {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

// Of the rounds of a point that are shown.
function middle(each) {
  const [first, last] = range || [each.first, each.last];
  return (Math.max(each.first, first) + Math.min(each.last, last)) / 2;
}

const rounds = (each) => (each.first === each.last ? `round ${each.first}` : `rounds ${each.first} to ${each.last}`);
const fixed = (value) => (value === null || value === undefined ? "–" : value.toFixed(3));
const mean = (values) => values.reduce((sum, each) => sum + each, 0) / values.length;

// The legend tells of the round at the cursor, and else of the last round.
const told = (format) => (u, value, series, at) => {
  const values = u.data?.[series] || [];
  at ??= values.findLastIndex((each) => each != null);
  return values[at] == null ? "–" : format(values[at], u, series, at);
};

// The nearest round at which a series has a value: evaluations and alarms are far apart.
function nearest(u, series, index) {
  const values = u.data[series];
  for (let away = 0; away < values.length; away++) {
    if (values[index - away] != null) return index - away;
    if (values[index + away] != null) return index + away;
  }
  return index;
}

function extent() {
  if (range) return range;
  const ends = [...points.flatMap((each) => [each.first, each.last]), ...facts.evaluations.map((each) => each.step)];
  return [Math.min(...ends) - 0.5, Math.max(...ends) + 0.5];
}

const axis = (more) => ({ stroke: () => colour("--faint"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif", ...more });

function options(target, { height = HEIGHT, series, bands = [], y, yAxis = {}, draw = () => {} }) {
  return {
    width: target.clientWidth,
    height,
    scales: { x: { time: false, range: extent }, y },
    axes: [axis({ incrs: INTEGERS, size: 28, space: 60 }), axis({ size: 44, ...yAxis })],
    series: [{ label: "round", value: told((value) => String(Math.round(value))) }, ...series],
    bands,
    cursor: {
      sync: { key: "rounds" },
      dataIdx: nearest,
      points: { size: 6 },
      drag: { x: true, y: false, setScale: false },
      bind: { dblclick: () => () => (zoom(null), null) },
    },
    hooks: {
      draw: [draw],
      setSelect: [
        (u) => {
          if (u.select.width < 2) return;
          const [from, to] = [u.select.left, u.select.left + u.select.width].map((at) => u.posToVal(at, "x"));
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          zoom([Math.floor(from), Math.ceil(to)]);
        },
      ],
    },
  };
}

// Show data in the chart of an element. It is made anew where it gets other series.
function chart(id, label, settings, data) {
  const target = $(id), kept = charts.get(id);
  const key = JSON.stringify([settings.height, settings.series.map((each) => each.label)]);
  target.setAttribute("aria-label", label);
  if (kept && kept.key === key && kept.u.root.isConnected) return kept.u.setData(data);
  if (kept) kept.u.destroy();
  target.replaceChildren();
  charts.set(id, { key, u: new uPlot(options(target, settings), data, target) });
}

function none(id, text) {
  charts.get(id)?.u.destroy();
  charts.delete(id);
  $(id).replaceChildren(nothing(text));
}

const noRounds = () => (facts.points.length ? "The node knows no round of this range." : "No round has been played yet.");

const dots = (name, size) => ({ paths: () => null, stroke: () => colour(name), points: { show: true, size, stroke: () => colour(name), fill: () => colour(name) } });

function showCurve() {
  if (!points.length && !facts.evaluations.length) return none("curve", noRounds());
  const rewards = points.map((each) => each.reward);
  const smooth = rewards.map((_, at) => mean(rewards.slice(Math.max(0, at - SMOOTHED), at + SMOOTHED + 1)));
  const evaluated = Object.entries(EVALUATIONS).filter(([, [, shown]]) => shown().length);
  const data = uPlot.join([
    [points.map(middle), points.map((each) => each.high), points.map((each) => each.low), rewards, smooth],
    ...evaluated.map(([, [, shown]]) => [shown().map((each) => each.step), shown().map((each) => each.pass_at_1)]),
  ]);
  const intervals = (u) => {
    u.ctx.save();
    u.ctx.lineWidth = 1.5 * devicePixelRatio;
    u.ctx.globalAlpha = 0.6;
    const [from, to] = [u.scales.x.min, u.scales.x.max];
    for (const [name, shown] of Object.values(EVALUATIONS)) {
      u.ctx.strokeStyle = colour(name);
      for (const each of shown().filter((each) => each.step >= from && each.step <= to)) {
        const x = u.valToPos(each.step, "x", true);
        u.ctx.beginPath();
        u.ctx.moveTo(x, u.valToPos(each.low, "y", true));
        u.ctx.lineTo(x, u.valToPos(each.high, "y", true));
        u.ctx.stroke();
      }
    }
    u.ctx.restore();
  };
  const heldOut = (shown) => (value, u, series, at) => {
    const { step, low, high } = shown().find((each) => each.step === u.data[0][at]);
    return `${fixed(value)} (${fixed(low)} to ${fixed(high)}) after round ${step}`;
  };
  const bound = (label) => ({ label, stroke: () => colour("--band"), width: 0, points: { show: false }, spanGaps: true, value: told(fixed) });
  chart("curve", curveInWords(), {
    y: { range: [0, 1] },
    draw: intervals,
    bands: [{ series: [1, 2], fill: () => colour("--band") }],
    series: [
      bound("highest"),
      bound("lowest"),
      { label: "mean reward", ...dots("--faint", 3), value: told(fixed) },
      { label: "smoothed", stroke: () => colour("--one"), width: 2.5, spanGaps: true, points: { show: false }, value: told(fixed) },
      ...evaluated.map(([label, [name, shown]]) => ({ label, ...dots(name, 8), value: told(heldOut(shown)) })),
    ],
  }, data);
}

function curveInWords() {
  const [first, last] = [points[0], points.at(-1)], shown = facts.evaluations;
  const reward = first ? `Mean reward ${fixed(first.reward)} in ${rounds(first)}, ${fixed(last.reward)} in ${rounds(last)}.` : "";
  const heldOut = shown.length ? ` Held-out pass@1 ${fixed(shown[0].pass_at_1)} after round ${shown[0].step}, ${fixed(shown.at(-1).pass_at_1)} after round ${shown.at(-1).step}.` : "";
  return reward + heldOut;
}

function showPhases() {
  if (!points.length) return none("phases", noRounds());
  const names = Object.keys(PHASES);
  const seconds = names.map((name) => points.map((each) => each.seconds[name] || 0));
  const stacked = seconds.map((_, place) => points.map((_, at) => seconds.slice(0, place + 1).reduce((sum, each) => sum + each[at], 0)));
  // The highest stack is drawn first, so that each lower one covers its part of it.
  const order = [...names.keys()].reverse();
  const bars = uPlot.paths.bars({ size: [1, 24], gap: 0 });
  chart("phases", `Seconds of ${rounds(points.at(-1))}: ${names.map((name, place) => `${name} ${seconds[place].at(-1).toFixed(1)}`).join(", ")}.`, {
    y: { range: (u, low, high) => [0, Math.max(high, 0.1) * 1.05] },
    series: order.map((place) => ({
      label: names[place],
      width: 0,
      fill: () => colour(PHASES[names[place]]),
      paths: bars,
      points: { show: false },
      value: told((value, u, series, at) => `${(value - (u.data[series + 1]?.[at] ?? 0)).toFixed(1)} s`),
    })),
  }, [points.map(middle), ...order.map((place) => stacked[place])]);
}

function showTrust() {
  const trust = facts.trust;
  const peers = [...new Set(trust.flatMap((each) => Object.keys(each.peers)))];
  if (!peers.length) return none("trust", trust.length ? "No peers heard of yet." : "Drawn from the next round on.");
  chart("trust", `Trust of ${peers.length} peers`, {
    y: { range: [0, 1] },
    series: peers.map((peer, place) => ({ label: "…" + peer.slice(-8), stroke: () => colour(COLOURS[place % COLOURS.length]), width: 2, dash: place < COLOURS.length ? [] : [6, 4], spanGaps: true, value: told((value) => value.toFixed(2)) })),
  }, [trust.map((each) => each.step), ...peers.map((peer) => trust.map((each) => each.peers[peer] ?? null))]);
}

// One lane for each kind of alarm that was raised, and for each filter that has masked something.
function showTimeline() {
  const alarms = Object.keys(ALARMS).filter((name) => ALARMS[name]().length);
  const filters = [...new Set(points.flatMap((each) => Object.keys(each.filtered)))].sort();
  const names = [...alarms, ...filters];
  if (!names.length) return none("timeline", "No filter has masked anything, and there was no alarm.");
  const lane = (name) => names.length - 1 - names.indexOf(name);
  const masked = (name) => new Map(points.map((each) => [middle(each), each.filtered[name] || 0]));
  const total = (name) => (name in ALARMS ? ALARMS[name]().length : [...masked(name).values()].reduce((sum, each) => sum + each, 0));
  const marks = (name) => (name in ALARMS ? ALARMS[name]().map((each) => each.step) : [...masked(name)].filter(([, count]) => count).map(([x]) => x));
  const inAll = (name) => counted(total(name), name in ALARMS ? "time" : "completion");
  const at = (name, x) => (name in ALARMS ? `after round ${x}` : `${counted(masked(name).get(x), "completion")} at round ${Math.round(x)}`);
  const data = uPlot.join([[points.map(middle)], ...names.map((name) => {
    const steps = [...new Set(marks(name))].sort((a, b) => a - b);
    return [steps, steps.map(() => lane(name))];
  })]);
  chart("timeline", names.map((name) => `${name}: ${inAll(name)}`).join(", "), {
    height: LANES_MARGIN + LANE * names.length,
    y: { range: [-0.6, names.length - 0.4] },
    yAxis: { size: 118, splits: () => names.map(lane), values: () => names },
    series: names.map((name) => ({
      label: name,
      ...dots(name in ALARMS ? "--bad" : "--one", 7),
      value: (u, value, series, place) => (value == null ? inAll(name) : at(name, u.data[0][place])),
    })),
  }, data);
}

function draw() {
  showCurve();
  showTimeline();
  showPhases();
  showTrust();
  $("range").textContent = [range && `Rounds ${range[0]} to ${range[1]}.`, refused].filter(Boolean).join(" ");
  for (const id of ["ranges", "how-to-zoom"]) $(id).hidden = !facts.points.length;
}

const zoomed = turns();

async function zoom(wanted) {
  if (wanted && !facts.points.length) return;
  const isNewest = zoomed(), [first, last] = wanted || [];
  const bounds = wanted && [Math.max(0, first), Math.min(facts.points.at(-1).last, Math.max(last, first + 1))];
  try {
    const found = bounds ? (await get(`api/curve?first=${bounds[0]}&last=${bounds[1]}`)).points : facts.points;
    if (!isNewest()) return;
    [points, range, refused] = [found, bounds, ""];
  } catch (error) {
    if (!isNewest()) return;
    refused = `Rounds ${bounds[0]} to ${bounds[1]} cannot be shown: ${error.message}`;
  }
  draw();
}

// Draw the facts. A range that was chosen stays as it is.
export function showCharts(state) {
  facts = state;
  if (!range) points = state.points;
  draw();
}

for (const button of document.querySelectorAll("#ranges button")) {
  const last = Number(button.dataset.last);
  button.addEventListener("click", () => zoom(last ? [facts.points.at(-1).last - last + 1, facts.points.at(-1).last] : null));
}
new ResizeObserver(() => {
  for (const [id, { u }] of charts) u.setSize({ width: $(id).clientWidth, height: u.height });
}).observe(document.querySelector("main"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const { u } of charts.values()) u.destroy();
  charts.clear();
  if (facts) draw();
});
