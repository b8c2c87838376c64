// The clock of the page and its controls: which stop is shown, by button, key, slider, time, or playing.
"use strict";

const run = JSON.parse(document.getElementById("run").textContent);
const at = (id) => document.getElementById(id);
const lanes = run.lanes.map((data) => new Lane(data));
const views = lanes.map((lane, number) => new LaneView(run, lane, number, announce));
const jumps = Object.fromEntries(["refuse", "preempt", "evict"].map((kind) => [kind, stopsOf(kind)]));
const last = run.us.length - 1;
const shown = { stop: 0, playing: false, moved: 0, theme: themeNow() };

/** Stops at which something of a kind happens in any lane, ascending. */
function stopsOf(kind) {
  const stops = new Set();
  for (const { data } of lanes) {
    data.frames.forEach(({ s }, frame) => { if (s.some(([one]) => one === kind)) stops.add(data.at[frame]); });
  }
  return [...stops].sort((one, two) => one - two);
}

/** Says something to who cannot see the page. */
function announce(text) {
  at("live").textContent = text;
}

/** Shows a stop; `aloud` says its sentences. */
function show(stop, aloud = true) {
  const before = shown.stop;
  shown.stop = Math.min(Math.max(stop, 0), last);
  if (shown.stop !== before) at("nothing").textContent = "";
  for (const view of views) view.show(shown.stop, shown.theme);
  const time = seconds(run.us[shown.stop] ?? 0);
  at("time").textContent = time;
  if (document.activeElement !== at("seconds")) at("seconds").value = time.replace(/,| s/g, "");
  at("step").textContent = `event ${thousands(shown.stop + 1)} of ${thousands(last + 1)}`;
  at("slider").value = shown.stop;
  at("slider").setAttribute("aria-valuetext", `${time}, event ${shown.stop + 1} of ${last + 1}`);
  at("back").disabled = at("first").disabled = shown.stop === 0;
  at("on").disabled = at("end").disabled = shown.stop === last;
  if (aloud) announce(`${time}. ${views.map((view) => view.sentences(shown.stop)).filter(Boolean).join(" ")}`);
  if (!shown.playing) drawMarks();
}

function step(by) {
  pause();
  show(shown.stop + by);
}

/** The next stop (or the one before) at which something of a kind happens. */
function jump(kind, backwards = false) {
  pause();
  const stops = jumps[kind], noun = LISTED_KINDS[kind];
  const next = backwards ? stops.findLast((stop) => stop < shown.stop) : stops.find((stop) => stop > shown.stop);
  if (next === undefined) announce(`no ${backwards ? "earlier" : "further"} ${noun}`);
  if (next === undefined) at("nothing").textContent = `no ${backwards ? "earlier" : "further"} ${noun}`;
  else show(next);
}

/** The last stop that is not after a time in seconds; what lies outside of the run is said. Keys are the page's again. */
function goTo(text) {
  pause();
  at("slider").focus();
  const time = Number(text), us = Math.round(time * 1e6), times = run.us.map(Number);
  if (text === "") return outside("no time is given");
  show(lastNotAfter(times, us));
  if (us < times[0]) outside(`${time} s is before the first event, at ${seconds(run.us[0])}`);
  if (us > times[last]) outside(`${time} s is after the last event, at ${seconds(run.us[last])}`);
}

function outside(text) {
  at("nothing").textContent = text;
  announce(text);
}

// ---------------------------------------------------------------------- playing
function play() {
  if (shown.stop === last) show(0, false);
  shown.playing = true;
  shown.moved = performance.now();
  label();
  requestAnimationFrame(tick);
}

function pause() {
  if (!shown.playing) return;
  shown.playing = false;
  label();
  drawMarks();
}

function label() {
  at("play").textContent = shown.playing ? "❚❚ Pause" : "▶ Play";
  at("play").setAttribute("aria-pressed", String(shown.playing));
}

function tick(now) {
  if (!shown.playing) return;
  const due = Math.floor(((now - shown.moved) * Number(at("speed").value)) / 1000);
  if (due > 0) {
    shown.moved = now;
    show(shown.stop + due, false);
  }
  if (shown.stop === last) pause(); else requestAnimationFrame(tick);
}

function toggle() {
  if (shown.playing) pause(); else play();
}

// ---------------------------------------------------------------------- marks over the slider
/** Where refusals, preemptions and evictions are, a line each; and where we are. */
function drawMarks() {
  const canvas = at("marks"), ctx = prepared(canvas, 24), width = canvas.clientWidth, { colours } = shown.theme;
  Object.values(jumps).forEach((stops, line) => {
    ctx.fillStyle = [colours["--external"], colours["--accent"], colours["--cached"]][line];
    for (const stop of stops) ctx.fillRect(8 + ((width - 16) * stop) / Math.max(last, 1) - 0.75, line * 8 + 1, 1.5, 6);
  });
}

// ---------------------------------------------------------------------- keys and buttons
const KEYS = { " ": toggle, ArrowRight: () => step(1), ArrowLeft: () => step(-1), ".": () => step(1), ",": () => step(-1),
               Home: () => step(-last), End: () => step(last) };
const JUMP_KEYS = { r: "refuse", p: "preempt", e: "evict" };

function key(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const { tagName, type } = event.target;
  if (tagName === "SELECT" || (tagName === "INPUT" && type !== "range")) return;
  if (tagName === "INPUT" && event.key in KEYS && event.key.length > 1) return;          // the slider's own keys
  if (event.key === " " && ["BUTTON", "SUMMARY", "A"].includes(tagName)) return;
  const kind = JUMP_KEYS[event.key.toLowerCase()];
  if (kind) jump(kind, event.shiftKey);
  else if (event.key in KEYS) KEYS[event.key]();
  else return;
  event.preventDefault();
}

function listen() {
  const clicks = { play: toggle, back: () => step(-1), on: () => step(1), first: () => step(-last), end: () => step(last),
                   refuse: () => jump("refuse"), preempt: () => jump("preempt"), evict: () => jump("evict") };
  for (const [id, act] of Object.entries(clicks)) at(id).addEventListener("click", act);
  for (const [kind, stops] of Object.entries(jumps)) at(kind).disabled = !stops.length;
  at("slider").addEventListener("input", (event) => { pause(); show(Number(event.target.value)); });
  at("goto").addEventListener("submit", (event) => { event.preventDefault(); goTo(at("seconds").value); });
  document.addEventListener("keydown", key);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(redraw).observe(at("lanes"));
}

/** Again, in the colours and sizes of now. */
function redraw() {
  shown.theme = themeNow();
  drawLegend();
  drawMarks();
  show(shown.stop, false);
}

function drawLegend() {
  for (const canvas of document.querySelectorAll("canvas.swatch")) {
    const part = Number(canvas.dataset.part), ctx = prepared(canvas, 18);
    const colour = part <= INTERNAL ? NOBODYS : shown.theme.colours[PART_COLOURS[part]];
    ctx.fillStyle = fillOf(ctx, shown.theme, part, colour);
    ctx.fillRect(0, 0, canvas.clientWidth, 18);
    ctx.strokeStyle = shown.theme.colours["--soft"];
    ctx.strokeRect(0.5, 0.5, canvas.clientWidth - 1, 17);
  }
}

at("extent").textContent = [run.thinned && `Thinned: ${run.thinned}, those around refusals, preemptions and evictions first.`,
                            ...lanes.map(scaleText)].filter(Boolean).join(" ");
at("lanes").replaceChildren(...views.map(({ root }) => root));
at("slider").max = last;
if (matchMedia("(prefers-reduced-motion: reduce)").matches) at("speed").value = "1";
for (const view of views) view.listEvents((stop) => { pause(); view.lead(); show(stop); });
listen();
label();
redraw();
