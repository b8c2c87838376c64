// The pool at any frame: states are made by applying changes (experiments/viewer/changes.py) to the last one, or to a copy kept
// every KEY_EVERY frames. Nothing here touches the page.
"use strict";

const KEY_EVERY = 64;
const MOST_CELLS = 1024;
const [STATES, RESERVED, INTERNAL, CACHED, EXTERNAL, REMAINDER, IDLE] = [0, 1, 2, 3, 4, 5, 6];

/** Numbers as they were: `[first, n]` stands for n neighbours from the first on, falling where n is negative. */
function unpacked(numbers) {
  return numbers.flatMap((one) => {
    if (!Array.isArray(one)) return one;
    const [first, n] = one, step = Math.sign(n);
    return Array.from({ length: Math.abs(n) }, (_, i) => first + i * step);
  });
}

/** A list used at both ends: without its first and without `dropped`, between `front` and `back`. */
function changedList(old, [popped, dropped, front, back]) {
  const gone = new Set(unpacked(dropped));
  return [...unpacked(front), ...old.slice(popped).filter((one) => !gone.has(one)), ...unpacked(back)];
}

function emptyState() {
  return { frame: -2, rows: new Map(), waiting: [], waits: 0, queue: [], findable: new Set(), holes: [], parts: [], numbers: [],
           refused: "" };
}

/** Applies one frame's change to a state. */
function apply(state, change, arena) {
  state.frame += 1;
  applyRows(state, change, arena);
  if (change.w) state.waiting = changedList(state.waiting, change.w);
  if (change.q) state.queue = changedList(state.queue, change.q);
  for (const block of unpacked(change.e ?? [])) state.findable.delete(block);
  for (const block of unpacked(change.d ?? [])) state.findable.add(block);
  state.waits = change.v ?? state.waits;
  state.holes = change.h ?? state.holes;
  state.parts = change.l ?? state.parts;
  state.numbers = change.m ?? state.numbers;
  state.refused = change.f ?? state.refused;
}

function applyRows({ rows, frame }, change, arena) {
  for (const id of change.x ?? []) rows.delete(id);
  if (change.u) for (const row of rows.values()) row.computed += change.u;
  for (const [id, computed] of change.c ?? []) rows.get(id).computed = computed;
  for (const [id, from, blocks] of change.b ?? []) goOn(rows.get(id), from, unpacked(blocks), frame);
  const ends = change.a ?? [];
  for (let i = 0; i < ends.length; i += 2) goOn(rows.get(ends[i]), rows.get(ends[i]).blocks.length, [ends[i + 1]], frame);
  for (const [id, admitted, computed, end, held] of change.n ?? []) {
    const blocks = arena ? [] : unpacked(held);
    rows.set(id, { id, admitted, computed, end, blocks, since: blocks.map(() => frame), place: arena ? held : null });
  }
}

/** A block table that is another from a place on. */
function goOn(row, from, blocks, frame) {
  row.blocks = row.blocks.slice(0, from).concat(blocks);
  row.since = row.since.slice(0, from).concat(blocks.map(() => frame));
}

/** Frames of one allocator, with a state that moves through them. */
class Lane {
  constructor(data) {
    this.data = data;
    this.state = emptyState();
    apply(this.state, data.first, data.arena);
    this.keys = [structuredClone(this.state)];
    for (const change of data.frames) {
      apply(this.state, change, data.arena);
      if ((this.state.frame + 1) % KEY_EVERY === 0) this.keys.push(structuredClone(this.state));
    }
  }

  /** The last frame at or before a stop; -1 before the first. */
  frameAt(stop) {
    return lastNotAfter(this.data.at, stop);
  }

  /** Moves the state to a frame. */
  go(frame) {
    const key = Math.floor((frame + 1) / KEY_EVERY);
    if (frame < this.state.frame || frame - this.state.frame > KEY_EVERY) this.state = structuredClone(this.keys[key]);
    while (this.state.frame < frame) apply(this.state, this.data.frames[this.state.frame + 1], this.data.arena);
    return this.state;
  }
}

/** Place of the last entry of an ascending list that is not above `wanted`; -1 for none. */
function lastNotAfter(ascending, wanted) {
  let low = 0, high = ascending.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ascending[middle] <= wanted) low = middle + 1; else high = middle;
  }
  return low - 1;
}

/** What free slots are now that hold nothing findable. */
function freePart({ refused, parts }, arena) {
  if (!refused) return IDLE;
  return arena && !parts[REMAINDER] ? EXTERNAL : REMAINDER;
}

/** By block id: ref count, slots filled, slots that will be, the first holder's row, and a mark that equal holders share. */
function layOut(lane, state) {
  const { blocks, size } = lane.data, n = blocks + 1;
  const laid = { refs: new Uint32Array(n), filled: new Uint32Array(n), wanted: new Uint32Array(n), owner: new Int32Array(n),
                 mark: new Int32Array(n) };
  for (const row of state.rows.values()) {
    row.blocks.forEach((block, place) => {
      if (!laid.refs[block]) laid.owner[block] = row.id;
      laid.refs[block] += 1;
      laid.filled[block] = Math.max(laid.filled[block], Math.min(Math.max(row.computed - place * size, 0), size));
      laid.wanted[block] = Math.max(laid.wanted[block], Math.min(Math.max(row.end - place * size, 0), size));
      laid.mark[block] = (Math.imul(laid.mark[block], 31) + row.id + 1) | 0;
    });
  }
  return laid;
}

/** The slots of one block as [part, slots, row or null], in order; block 0 are the slots that make no whole block. */
function blockSegments(lane, state, laid, block) {
  const { size, rest } = lane.data;
  if (!block) return [[EXTERNAL, rest, null]];
  if (!laid.refs[block]) return [[state.findable.has(block) ? CACHED : freePart(state, false), size, null]];
  const row = state.rows.get(laid.owner[block]), filled = laid.filled[block], wanted = laid.wanted[block];
  return [[STATES, filled, row], [RESERVED, wanted - filled, row], [INTERNAL, size - wanted, row]].filter(([, slots]) => slots);
}

/** The blocks of a cell of the map: `each` of them by id; the slots that make no whole block come last, as block 0. */
function cellBlocks(lane, cell, each) {
  const { blocks, rest } = lane.data, all = blocks + (rest ? 1 : 0), from = cell * each;
  return Array.from({ length: Math.min(each, all - from) }, (_, i) => (from + i < blocks ? from + i + 1 : 0));
}

/** Slots by part of several blocks. */
function summed(lane, state, laid, blocks) {
  const parts = new Array(7).fill(0);
  for (const block of blocks) for (const [part, slots] of blockSegments(lane, state, laid, block)) parts[part] += slots;
  return parts;
}

/** Who holds a block: [row, place in its table] of each. */
function holdersOf(state, block) {
  return [...state.rows.values()].map((row) => [row, row.blocks.indexOf(block)]).filter(([, place]) => place >= 0);
}

/** Reservations and holes of an arena by address: {start, slots, row, segments}. */
function arenaOf(lane, state) {
  const free = freePart(state, true), made = state.holes.map(([start, slots]) => ({ start, slots, row: null,
                                                                                    segments: [[free, slots, null]] }));
  for (const row of state.rows.values()) {
    const [start, size, rounded] = row.place, filled = Math.min(row.computed, size), wanted = Math.min(row.end, size);
    const segments = [[STATES, filled, row], [RESERVED, wanted - filled, row], [INTERNAL, size - wanted, row],
                      [EXTERNAL, rounded - size, row]];
    made.push({ start, slots: rounded, row, segments: segments.filter(([, slots]) => slots) });
  }
  return made.sort((one, two) => one.start - two.start);
}

/** Slots by part as they are drawn: the same as the ledger, by another way. */
function drawnParts(lane, state) {
  if (!lane.data.arena) return summed(lane, state, layOut(lane, state), cellBlocks(lane, 0, lane.data.blocks + 1));
  const parts = new Array(7).fill(0);
  for (const { segments } of arenaOf(lane, state)) for (const [part, slots] of segments) parts[part] += slots;
  return parts;
}

/** The block the next eviction will take, and how many blocks are handed out before it; null where none is cached. */
function nextEvicted(state) {
  const before = state.queue.findIndex((block) => state.findable.has(block));
  return before < 0 ? null : { block: state.queue[before], before };
}
