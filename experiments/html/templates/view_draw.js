// Drawing: a pool block by block, an arena as one bar of addresses in lines; colour by request, pattern by part.
"use strict";

const PALETTE = ["#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#8c9aa8"];
const NOBODYS = PALETTE[4];                            // of cells that stand for several blocks, and of the legend
const DARK_INK = "#101418", LIGHT_INK = "#ffffff", WHITE_ON = new Set(["#0072b2"]);
const PART_COLOURS = ["", "", "", "--cached", "--external", "--remainder", "--idle"];
const GUTTER = 44, LINE = 30, LABEL_FROM = 20, EDGE_FROM = 14;

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Colours of the page as it is now; patterns are made once for each colour. */
function themeNow() {
  const names = ["--paper", "--ink", "--soft", "--line", "--accent", "--cached", "--external", "--remainder", "--idle"];
  return { colours: Object.fromEntries(names.map((name) => [name, css(name)])), patterns: new Map() };
}

function colourOf(lane, row) {
  return PALETTE[lane.data.requests[row.id] % PALETTE.length];
}

const STROKES = {
  [RESERVED]: [[0, 8, 8, 0], [-2, 2, 2, -2], [6, 10, 10, 6]],
  [INTERNAL]: [[0, 8, 8, 0], [0, 0, 8, 8]],
  [EXTERNAL]: [[0, 2, 8, 2], [0, 6, 8, 6]],
  [REMAINDER]: [[2, 0, 2, 8], [6, 0, 6, 8]],
};

/** The fill of a part: plain for token states and idle, dots for cached, lines for the others. */
function fillOf(ctx, theme, part, colour) {
  if (part === STATES || part === IDLE) return colour;
  const key = `${part} ${colour}`;
  if (!theme.patterns.has(key)) theme.patterns.set(key, ctx.createPattern(tile(theme, part, colour), "repeat"));
  return theme.patterns.get(key);
}

function tile(theme, part, colour) {
  const made = document.createElement("canvas");
  made.width = made.height = 8;
  const ctx = made.getContext("2d");
  ctx.fillStyle = theme.colours["--paper"];
  ctx.fillRect(0, 0, 8, 8);
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.lineWidth = part === INTERNAL ? 1 : 2;
  if (part === CACHED) for (const [x, y] of [[2, 2], [6, 6]]) { ctx.beginPath(); ctx.arc(x, y, 1.6, 0, 7); ctx.fill(); }
  for (const [x, y, toX, toY] of STROKES[part] ?? []) { ctx.beginPath(); ctx.moveTo(x, y); ctx.lineTo(toX, toY); ctx.stroke(); }
  return made;
}

function partColour(lane, theme, part, row) {
  return part <= INTERNAL ? (row ? colourOf(lane, row) : NOBODYS) : theme.colours[PART_COLOURS[part]];
}

/** Sizes a canvas for its place on the page; returns its context in CSS pixels. */
function prepared(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  return ctx;
}

// ---------------------------------------------------------------------- a pool, block by block
/** How many blocks a cell stands for, and how cells are laid out. */
function gridOf(lane, width) {
  const blocks = lane.data.blocks + (lane.data.rest ? 1 : 0), each = Math.ceil(blocks / MOST_CELLS);
  const cells = Math.ceil(blocks / each), least = cells <= 160 ? 22 : cells <= 480 ? 16 : 9;
  const columns = Math.max(1, Math.min(cells, Math.floor(width / least)));
  return { each, cells, columns, size: width / columns, height: Math.max(least, Math.min(width / columns, 30)),
           lines: Math.ceil(cells / columns) };
}

function drawPool(canvas, lane, state, theme, chosen, laid) {
  const grid = gridOf(lane, canvas.clientWidth), ctx = prepared(canvas, grid.lines * grid.height + 2);
  const next = nextEvicted(state), items = [];
  for (let cell = 0; cell < grid.cells; cell++) {
    const x = (cell % grid.columns) * grid.size + 1, y = Math.floor(cell / grid.columns) * grid.height + 1;
    const blocks = cellBlocks(lane, cell, grid.each), box = { x, y, width: grid.size - 2, height: grid.height - 2, blocks };
    const segments = grid.each === 1 ? blockSegments(lane, state, laid, blocks[0])
                                     : summed(lane, state, laid, blocks).map((slots, part) => [part, slots, null]);
    drawSegments(ctx, lane, theme, box, segments.filter(([, slots]) => slots));
    if (grid.each === 1 && grid.height >= LABEL_FROM) drawLabels(ctx, lane, theme, box, laid, state.queue[0], next);
    items.push(box);
  }
  drawChosen(ctx, theme, items[chosen]);
  return items;
}

/** Segments side by side, as wide as they have slots. */
function drawSegments(ctx, lane, theme, box, segments) {
  const slots = segments.reduce((sum, [, n]) => sum + n, 0);
  let x = box.x;
  for (const [part, n, row] of segments) {
    const width = (box.width * n) / slots;
    ctx.fillStyle = fillOf(ctx, theme, part, partColour(lane, theme, part, row));
    ctx.fillRect(x, box.y, width, box.height);
    x += width;
  }
  if (box.height < EDGE_FROM) return;
  ctx.strokeStyle = theme.colours["--line"];
  ctx.lineWidth = 1;
  ctx.strokeRect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1);
}

/** Who holds the block, its ref count where it is shared; N on the next block to be handed out, E on the next to be evicted. */
function drawLabels(ctx, lane, theme, box, laid, first, evicted) {
  const [block] = box.blocks, refs = laid.refs[block], id = laid.owner[block];
  if (refs) {
    if (refs > 1) frame(ctx, theme, box);
    tag(ctx, theme, box, refs > 1 ? `×${refs}` : lane.data.names[id], colourOf(lane, { id }));
  } else if (evicted !== null && block === evicted.block) {
    tag(ctx, theme, box, block === first ? "N E" : "E", theme.colours["--paper"]);
  } else if (block === first) {
    tag(ctx, theme, box, "N", theme.colours["--paper"]);
  }
}

/** A second edge around a block that is shared. */
function frame(ctx, theme, box) {
  ctx.strokeStyle = theme.colours["--ink"];
  ctx.lineWidth = 2;
  ctx.strokeRect(box.x + 1, box.y + 1, box.width - 2, box.height - 2);
}

/** Words on a plain ground. */
function tag(ctx, theme, box, words, ground) {
  ctx.font = "600 10px system-ui, sans-serif";
  const room = box.width - 2, width = Math.min(ctx.measureText(words).width + 4, box.width);
  const x = box.x + (box.width - width) / 2, y = box.y + box.height / 2;
  ctx.fillStyle = ground;
  ctx.fillRect(x, y - 7, width, 14);
  ctx.fillStyle = ground === theme.colours["--paper"] ? theme.colours["--ink"] : WHITE_ON.has(ground) ? LIGHT_INK : DARK_INK;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillText(words, box.x + box.width / 2, y + 0.5, room);          // narrower letters, never fewer
}

/** A dashed edge in a colour of its own, unlike the second edge of a shared block. */
function drawChosen(ctx, theme, box) {
  if (!box) return;
  ctx.lineWidth = 4;
  for (const part of box.parts ?? [box]) {
    for (const [colour, dashes] of [["--paper", []], ["--accent", [5, 3]]]) {
      ctx.setLineDash(dashes);
      ctx.strokeStyle = theme.colours[colour];
      ctx.strokeRect(part.x, part.y, part.width, part.height);
    }
  }
  ctx.setLineDash([]);
}

// ---------------------------------------------------------------------- an arena, as one bar in lines
/** Slots a line: a power of two that gives at most eight lines. */
function slotsPerLine(capacity) {
  let slots = 256;
  while (slots * 8 < capacity) slots *= 2;
  return Math.min(slots, capacity);
}

function drawArena(canvas, lane, state, theme, chosen) {
  const { capacity } = lane.data, perLine = slotsPerLine(capacity), lines = Math.ceil(capacity / perLine);
  const ctx = prepared(canvas, lines * LINE + 2), scale = (canvas.clientWidth - GUTTER - 2) / perLine, items = [];
  ctx.font = "11px system-ui, sans-serif";
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  ctx.fillStyle = theme.colours["--soft"];
  for (let line = 0; line < lines; line++) {
    ctx.fillText(thousands(line * perLine), GUTTER - 6, line * LINE + LINE / 2, GUTTER - 6);
  }
  for (const item of arenaOf(lane, state)) {
    const parts = pieces(item.start, item.slots, perLine, scale);
    drawItem(ctx, lane, theme, item, perLine, scale);
    outline(ctx, theme, lane, item, parts);
    items.push({ ...parts[0], parts, item });
  }
  drawChosen(ctx, theme, items[chosen]);
  return items;
}

/** A run of addresses as boxes, one a line. */
function pieces(start, slots, perLine, scale) {
  const made = [];
  for (let at = start; at < start + slots;) {
    const line = Math.floor(at / perLine), stop = Math.min(start + slots, (line + 1) * perLine);
    made.push({ x: GUTTER + (at - line * perLine) * scale, y: line * LINE + 2, width: (stop - at) * scale, height: LINE - 4 });
    at = stop;
  }
  return made;
}

function drawItem(ctx, lane, theme, { start, segments }, perLine, scale) {
  let at = start;
  for (const [part, slots, row] of segments) {
    ctx.fillStyle = fillOf(ctx, theme, part, partColour(lane, theme, part, row));
    for (const box of pieces(at, slots, perLine, scale)) ctx.fillRect(box.x, box.y, box.width, box.height);
    at += slots;
  }
}

function outline(ctx, theme, lane, { row, slots }, parts) {
  ctx.strokeStyle = theme.colours["--ink"];
  ctx.lineWidth = 1;
  for (const box of parts) ctx.strokeRect(box.x + 0.5, box.y + 0.5, Math.max(box.width - 1, 0.5), box.height - 1);
  const widest = parts.reduce((one, two) => (two.width > one.width ? two : one));
  if (widest.width < LABEL_FROM) return;
  if (row) tag(ctx, theme, widest, lane.data.names[row.id], colourOf(lane, row));
  else tag(ctx, theme, widest, thousands(slots), theme.colours["--paper"]);
}
