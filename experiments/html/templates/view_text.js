// Words: times, names, and what the block under the pointer or the focus is. Nothing here touches the page.
"use strict";

const PART_NAMES = ["token states", "reserved", "internal fragmentation", "cached", "external fragmentation", "remainder",
                    "idle"];
const MOST_LISTED = 30, MOST_GROUPS = 6;

/** A number with separators; text stays exact. */
function thousands(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** Microseconds as seconds, digit by digit: they may be text, where a number would be rounded. */
function seconds(us) {
  const digits = String(us).padStart(7, "0");
  const [whole, part] = [digits.slice(0, -6), digits.slice(-6).replace(/0{1,3}$/, "")];
  return `${thousands(whole)}.${part} s`;
}

function counted(n, noun) {
  return `${thousands(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/** When a frame was: at the latest, where moments before it are left out. */
function when(lane, run, frame) {
  if (frame < 0) return "the start";
  const time = seconds(run.us[lane.data.at[frame]]);
  return lane.data.frames[frame].k ? `${time} at the latest` : time;
}

function listed(items) {
  const shown = items.slice(0, MOST_LISTED).join(", ");
  return items.length > MOST_LISTED ? `${shown} and ${thousands(items.length - MOST_LISTED)} more` : shown;
}

/** How coarse a map is, where a cell stands for several blocks. */
function scaleText(lane) {
  const { arena, name } = lane.data, { each } = gridOf(lane, 300);
  return arena || each === 1 ? "" : `Under ${name} each cell of the map is ${each} blocks in a row, its colours their slots by part.`;
}

/** What a block holds, for whom, since when, and the block table it stands in. */
function blockText(lane, run, state, laid, block) {
  const segments = blockSegments(lane, state, laid, block);
  if (!block) return `${counted(segments[0][1], "slot")} that make no whole block: never used, external fragmentation.`;
  const held = holdersOf(state, block);
  if (!held.length) return freeText(lane, state, block, segments[0][0]);
  const { names, size } = lane.data;
  const slots = segments.map(([part, n]) => `${n} ${PART_NAMES[part]}`).join(", ");
  const found = state.findable.has(block) ? ", findable by prefix lookups" : "";
  const [first, place] = held[0], tables = `block table${held.length > 1 ? "s" : ""}`;
  const holders = held.map(([row, at], i) => `${names[row.id]} (${i ? "" : "since "}${when(lane, run, row.since[at])})`);
  return `Block ${block}, ref count ${held.length}${found}. Of ${counted(size, "slot")}: ${slots}. Place ${place + 1} in the ` +
         `${tables} of ${listed(holders)}. Block table of ${names[first.id]}, ${counted(first.computed, "token")}: ` +
         `${listed(first.blocks)}.`;
}

function freeText(lane, state, block, part) {
  const place = state.queue.indexOf(block);
  const where = place < 0 ? "" : `, place ${place + 1} of ${state.queue.length} in the free queue`;
  const what = part === CACHED ? "cached: free to take, and evicted when it is taken; until then a prefix lookup finds it"
                               : `free, holds nothing that can be found (${PART_NAMES[part]})`;
  return `Block ${block}, ref count 0${where}: ${what}.`;
}

/** What lies at some addresses. */
function addressText(lane, run, { start, slots, row, segments }) {
  const where = `Addresses ${thousands(start)} to ${thousands(start + slots - 1)}`;
  if (!row) return `${where}: a hole of ${counted(slots, "slot")} (${PART_NAMES[segments[0][0]]}).`;
  const parts = segments.map(([part, n]) => `${thousands(n)} ${PART_NAMES[part]}${part === EXTERNAL ? " (rounding)" : ""}`);
  return `${where}: reserved for ${lane.data.names[row.id]}, admitted at ${seconds(row.admitted)}: ${parts.join(", ")}.`;
}

/** Several blocks drawn as one cell. */
function cellText(lane, run, state, laid, blocks) {
  if (blocks.length === 1) return blockText(lane, run, state, laid, blocks[0]);
  const holders = new Set(blocks.flatMap((block) => holdersOf(state, block).map(([row]) => lane.data.names[row.id])));
  const parts = summed(lane, state, laid, blocks).map((n, part) => (n ? `${n} ${PART_NAMES[part]}` : "")).filter(Boolean);
  const whose = holders.size ? ` Held by ${listed([...holders])}.` : "";
  return `Blocks ${blocks[0]} to ${blocks[0] + blocks.length - 1}, slots: ${parts.join(", ")}.${whose}`;
}

/** Which blocks several sequences hold, those with the same holders together. */
function sharedText(lane, state, laid) {
  const groups = new Map();
  laid.refs.forEach((refs, block) => {
    if (refs < 2) return;
    const key = `${refs} ${laid.mark[block]}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(block);
  });
  const told = [...groups.values()].slice(0, MOST_GROUPS).map((blocks) =>
    `${listed(blocks)} by ${listed(holdersOf(state, blocks[0]).map(([row]) => lane.data.names[row.id]))}`);
  return told.length ? `Shared: ${told.join("; ")}${groups.size > MOST_GROUPS ? "; ..." : ""}.` : "Shared: none.";
}

/** The free queue in words. */
function queueText(lane, state) {
  if (!state.queue.length) return "Free queue: empty. A sequence that needs a block has to wait for one, or preempts the last.";
  const head = state.queue.slice(0, 8).join(", "), more = state.queue.length > 8 ? ", ..." : "";
  const evicted = nextEvicted(state);
  const soon = evicted?.before ? `after ${counted(evicted.before, "other block")}` : "the very next";
  const next = !lane.data.caching ? "" : evicted === null ? " None of them is cached, so the next eviction is not near."
                                                          : ` Next eviction: block ${evicted.block}, ${soon}.`;
  return `Free queue (${counted(state.queue.length, "block")}, handed out in this order): ${head}${more}.${next}`;
}

/** A line of the formula with its numbers put in. */
function filledIn(line, numbers) {
  return line.replace(/\{(\d+)\}/g, (_, place) => numbers[Number(place)]);
}
