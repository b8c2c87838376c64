// One allocator on the page: its map, its ledger, its queue, what happened; and the block that is pointed at or focused.
"use strict";

const MANY = 60;
const LISTED_KINDS = { refuse: "refusal", preempt: "preemption", evict: "eviction", copy: "copy" };
const MOST_EVENTS = 300;
const URGENT = ["refuse", "preempt", "evict"];

function element(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** What must not be overlooked comes first: refusals, preemptions, evictions, then the rest as it happened. */
function urgentFirst(sentences) {
  return [...URGENT.flatMap((kind) => sentences.filter(([one]) => one === kind)),
          ...sentences.filter(([kind]) => !URGENT.includes(kind))];
}

class LaneView {
  constructor(run, lane, number, announce) {
    Object.assign(this, { run, lane, number, announce, chosen: 0, hovered: -1, focused: false, items: [], frame: -2 });
    this.root = document.getElementById("lane").content.firstElementChild.cloneNode(true);
    this.parts = Object.fromEntries([...this.root.querySelectorAll("[data-at]")].map((one) => [one.dataset.at, one]));
    this.root.dataset.lane = lane.data.name;
    this.#fill();
    this.#listen();
  }

  #fill() {
    const { name, about, fixed, notes, capacity, arena, blocks, size } = this.lane.data, { parts } = this;
    const id = `name-${this.number}`;
    parts.name.textContent = name;
    parts.name.id = id;
    this.root.setAttribute("aria-labelledby", id);
    parts.about.textContent = about;
    parts.total.textContent = thousands(capacity);
    parts.notes.replaceChildren(...[...notes, scaleText(this.lane)].filter(Boolean).map((note) => element("li", note)));
    parts.fixed.replaceChildren(...fixed.map((line) => element("li", line)));
    parts.blocks.hidden = arena;
    const what = arena ? `${counted(capacity, "slot")} in address order; arrow keys go from one reservation or hole to the next`
                       : `${counted(blocks, "block")} of ${counted(size, "slot")}; arrow keys go from block to block`;
    const { frames, moments } = this.lane.data, thinned = frames.length < moments
      ? `; ${thousands(frames.length)} of ${counted(moments, "moment")} are on this page` : "";
    const scale = scaleText(this.lane);
    parts.map.setAttribute("aria-label", `Memory map of ${name}: ${what}${thinned}${scale && `; ${scale}`}`);
    parts.detail.id = `detail-${this.number}`;
    parts.map.setAttribute("aria-describedby", parts.detail.id);
  }

  #listen() {
    const { map } = this.parts;
    map.addEventListener("pointermove", (event) => this.#hover(this.#itemAt(event)));
    map.addEventListener("pointerleave", () => this.#hover(-1));
    map.addEventListener("click", (event) => this.#choose(this.#itemAt(event)));
    map.addEventListener("focus", () => { if (map.matches(":focus-visible")) this.#choose(this.chosen); });
    map.addEventListener("blur", () => this.#leave());
    map.addEventListener("keydown", (event) => this.#key(event));
  }

  #itemAt({ offsetX, offsetY }) {
    return this.items.findIndex((item) => (item.parts ?? [item]).some((box) =>
      offsetX >= box.x - 1 && offsetX <= box.x + box.width + 1 && offsetY >= box.y - 1 && offsetY <= box.y + box.height + 1));
  }

  #hover(item) {
    if (item === this.hovered) return;
    this.hovered = item;
    this.#draw();
  }

  /** The block, reservation or hole that stays described while the map has the focus. */
  #choose(item) {
    if (item < 0) return;
    this.chosen = Math.min(item, this.items.length - 1);
    this.focused = true;
    this.#draw();
    this.announce(this.parts.detail.textContent);
  }

  #leave() {
    this.focused = false;
    this.#draw();
  }

  #key(event) {
    if (event.key === "Escape") this.#leave();
    const last = this.items.length - 1;
    const { columns } = this.lane.data.arena ? { columns: 1 } : gridOf(this.lane, this.parts.map.clientWidth);
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -last, End: last };
    if (!(event.key in moves) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    this.#choose(Math.min(Math.max(this.chosen + moves[event.key], 0), last));
  }

  /** Shows the pool at a stop. */
  show(stop, theme) {
    const { data } = this.lane, frame = this.lane.frameAt(stop);
    this.theme = theme;
    this.state = this.lane.go(frame);
    const now = frame >= 0 && data.at[frame] === stop;
    this.root.classList.toggle("now", now);
    const last = frame < 0 ? "nothing has happened yet" : `last at ${seconds(this.run.us[data.at[frame]])}:`;
    this.parts.when.textContent = now ? "now:" : last;
    if (frame !== this.frame) this.#change(frame);
    this.#draw();
  }

  /** The sentences of a stop, if this lane has any there. */
  sentences(stop) {
    const frame = this.lane.frameAt(stop), { at, frames, name } = this.lane.data;
    return frame >= 0 && at[frame] === stop ? `${name}: ${frames[frame].s.map(([, text]) => text).join(" ")}` : "";
  }

  #change(frame) {
    const { parts, state, lane } = this, { data } = lane;
    this.frame = frame;
    this.laid = data.arena ? null : layOut(lane, state);
    const change = data.frames[frame] ?? { s: [] };
    const left = change.k ? [element("li", `(${counted(change.k, "moment")} before this one left out)`, { class: "soft" })] : [];
    parts.said.replaceChildren(...urgentFirst(change.s).map(([kind, text]) => element("li", text, { class: kind })), ...left);
    this.#fit();
    parts.refused.textContent = state.refused;
    this.#ledger();
    this.#queues();
    parts.moving.replaceChildren(...data.moving.map((line) => element("li", filledIn(line, state.numbers))));
  }

  /** The box of the sentences never shrinks, so that what is below it stays; where its text is longer still, Tab leads into it. */
  #fit() {
    const { box } = this.parts;
    if (this.width !== box.clientWidth) box.style.minHeight = "";
    this.width = box.clientWidth;
    box.style.minHeight = `${box.offsetHeight}px`;
    box.tabIndex = box.scrollHeight > box.clientHeight ? 0 : -1;
    box.scrollTop = 0;
  }

  #ledger() {
    const rounding = [...this.state.rows.values()].reduce((sum, { place }) => sum + (place ? place[2] - place[1] : 0), 0);
    this.parts.rounding.textContent = rounding ? `(${thousands(rounding)} of it rounding)` : "";
    const { capacity } = this.lane.data;
    for (const row of this.parts.ledger.rows) {
      const slots = this.state.parts[row.dataset.part];
      row.cells[1].textContent = thousands(slots);
      row.cells[2].textContent = capacity ? `${((100 * Number(slots)) / capacity).toFixed(1)} %` : "";
    }
  }

  #queues() {
    const { parts, state, lane } = this, rows = [...state.rows.values()], { labels } = this.run;
    parts.waits.textContent = thousands(state.waits);
    const more = state.waits - state.waiting.length;
    const names = state.waiting.map((one) => labels[one]).join(", ") + (more ? ` and ${thousands(more)} more` : "");
    parts.waiting.textContent = state.waits ? names : "nobody";
    parts.runs.textContent = thousands(rows.length);
    parts.running.replaceChildren(...rows.slice(0, MANY).map((row) => this.#chip(row)),
                                  ...(rows.length > MANY ? [element("li", `and ${rows.length - MANY} more`)] : []));
    if (!rows.length) parts.running.replaceChildren(element("li", "nobody"));
    if (lane.data.arena) return;
    parts.shared.textContent = sharedText(lane, state, this.laid);
    parts.queue.textContent = queueText(lane, state);
  }

  #chip(row) {
    const { names } = this.lane.data, made = element("li", `${names[row.id]} ${thousands(row.computed)}/${thousands(row.end)}`);
    made.style.borderColor = colourOf(this.lane, row);
    return made;
  }

  #draw() {
    const { parts, lane, state, theme } = this, shown = this.hovered >= 0 ? this.hovered : this.focused ? this.chosen : -1;
    this.items = (lane.data.arena ? drawArena : drawPool)(parts.map, lane, state, theme, shown, this.laid);
    const item = this.items[shown];
    parts.detail.textContent = item ? this.#describe(item) : "";
    this.#place(item);
  }

  /** The text stands beside what it is about: below it in the upper half of the map, else above. */
  #place(item) {
    const { detail, map } = this.parts;
    detail.hidden = !item;
    if (!item) return;
    const box = (item.parts ?? [item])[0], low = 2 * box.y + box.height > map.clientHeight;
    detail.style.top = low ? "" : `${box.y + box.height + 6}px`;
    detail.style.bottom = low ? `${map.clientHeight - box.y + 6}px` : "";
  }

  #describe({ blocks, item }) {
    const { lane, run, state, laid } = this;
    return blocks ? cellText(lane, run, state, laid, blocks) : addressText(lane, run, item);
  }

  /** Brings the map into view, with the focus on it. */
  lead() {
    this.parts.map.focus({ preventScroll: true });
    this.root.scrollIntoView({ block: "start" });
  }

  /** A list of everything that did not go smoothly, each entry a way there. */
  listEvents(go) {
    const found = this.lane.data.frames.flatMap(({ s }, frame) => s.filter(([kind]) => kind in LISTED_KINDS)
      .map(([, text]) => [frame, text]));
    this.parts.count.textContent = thousands(found.length);
    this.parts.events.replaceChildren(...found.slice(0, MOST_EVENTS).map(([frame, text]) => {
      const stop = this.lane.data.at[frame], item = element("li");
      const button = element("button", `${seconds(this.run.us[stop])} ${text}`);
      button.type = "button";
      button.addEventListener("click", () => go(stop));
      item.append(button);
      return item;
    }));
    const more = found.length - MOST_EVENTS;
    if (more > 0) this.parts.events.append(element("li", `and ${thousands(more)} more: use the keys`));
  }
}
