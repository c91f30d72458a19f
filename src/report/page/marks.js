/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the overlays on a timeline's rows: the critical path, found passes, and
 * the pass under the pointer with its messages. */

/* Returns row, top and height of a step of the critical path; null: not
 * shown. */
function stepPlace(panel, step, index) {
  const { t } = panel;
  if (step === 'p') {
    const row = panel.rows[panel.deviceRow[t.runs.device[index]]];
    return { y: row.y, h: row.h, kind: t.runs.kind[index],
      turn: t.rows.turns[t.runs.chunk[index]] };
  }
  if (step === 'c') {
    const row = panel.rows[panel.dpRow[t.collectives.device[index]]];
    return { y: row.y, h: row.h, kind: 4 };
  }
  const i = 'qtl'.includes(step) ? panel.linkRow.get(t.messages.link[index])
    : undefined;
  if (i === undefined) return null;
  const row = panel.rows[i];
  const { wait, send, fly } = row.bands;
  const kind = t.runs.kind[t.messages.from[index]];
  if (step === 'q') return { y: row.y, h: wait || row.h, kind };
  if (step === 't') return { y: row.y + wait, h: send || row.h, kind };
  return { y: row.y + wait + send, h: fly || row.h, kind, flight: true };
}

function drawPath(panel) {
  const { ctx, state } = panel;
  const { path } = panel.t;
  const shades = shadesOf(panel.t);
  const lo = above(path.end, state.a, 0, path.n);
  const hi = above(path.start, state.b, lo, path.n);
  const last = new Map(); /* rightmost pixel drawn, by row */
  const points = [];
  for (let i = lo; i < hi; i++) {
    const place = stepPlace(panel, path.step[i], path.index[i]);
    if (!place) continue;
    const x = panel.x(path.start[i]);
    const right = panel.x(path.end[i]);
    if (right < (last.get(place.y) ?? -1) + 0.7 && hi - lo > 2000) continue;
    last.set(place.y, right);
    const w = Math.max(right - x, 0.8);
    if (!place.flight) {
      ctx.fillStyle = shades[place.kind][place.turn || 0];
      ctx.fillRect(x, place.y, w > 4 ? w - 0.8 : w, place.h);
      ctx.fillStyle = colors.critical;
      const line = place.h >= 16 ? 3.5 : 2.5;
      ctx.fillRect(x, place.y + place.h - line, w, line);
      if (path.step[i] === 'p' && place.h >= 11 && w > 12)
        drawPathLabel(panel, path.index[i], x, right, place);
    }
    const mid = place.y + place.h - 2;
    if (place.flight)
      points.push([x, place.y + 1], [right, place.y + place.h - 2]);
    else
      points.push([x, mid], [right, mid]);
  }
  if (hi - lo > 1500) return;
  ctx.strokeStyle = colors.critical;
  ctx.lineWidth = 1.8;
  ctx.lineJoin = 'round';
  ctx.beginPath();
  points.forEach(([x, y], i) => (i ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
  ctx.stroke();
}

function drawPathLabel(panel, i, x, right, place) {
  const { ctx } = panel;
  x = Math.max(x, LEFT);
  right = Math.min(right, LEFT + panel.plot);
  const each = panel.labelFont(place.h, '600 ');
  const text = panel.labelFor(panel.label(i), each, right - x - 0.8);
  if (!text) return;
  ctx.textBaseline = 'middle';
  ctx.fillStyle = colors.labels[place.kind];
  ctx.fillText(text.trim(), (x + right) / 2, place.y + place.h / 2 - 0.5);
  ctx.textAlign = 'left';
}

function outlineRun(panel, i, color, width) {
  const { ctx, t } = panel;
  const row = panel.rows[panel.deviceRow[t.runs.device[i]]];
  const x = panel.x(t.runs.start[i]);
  const w = Math.max(2, panel.x(t.runs.end[i]) - x);
  if (x > LEFT + panel.plot || x + w < LEFT) return;
  ctx.lineWidth = width + 2;
  ctx.strokeStyle = colors.panel;
  ctx.strokeRect(x, row.y, w, row.h);
  ctx.lineWidth = width;
  ctx.strokeStyle = color;
  ctx.strokeRect(x, row.y, w, row.h);
}

function drawMatches(panel) {
  const { state } = panel;
  const mine = state.matches.filter((m) => m.panel === panel);
  const last = new Map();
  for (const m of mine) {
    const d = panel.t.runs.device[m.run];
    const x = panel.x(panel.t.runs.start[m.run]);
    if (x < (last.get(d) ?? -9) + 2 && mine.length > 300) continue;
    last.set(d, x);
    outlineRun(panel, m.run, colors.found, 2);
  }
}

/* The pass under the pointer, with its incoming and outgoing messages. */
function drawPicked(panel) {
  const { state, ctx, t } = panel;
  const picked = state.pinned || state.hover;
  if (!picked || picked.panel !== panel) return;
  let run = picked.run;
  let messages = [];
  if (run !== undefined) {
    outlineRun(panel, run, colors.ink, 2);
    messages = [t.runs.incoming[run], t.runs.outgoing[run]];
  } else if (picked.message !== undefined) {
    messages = [picked.message];
    outlineRun(panel, t.messages.from[picked.message], colors.ink, 1.5);
    outlineRun(panel, t.messages.to[picked.message], colors.ink, 1.5);
  }
  for (const m of messages) {
    if (m < 0) continue;
    const from = t.messages.from[m];
    const to = t.messages.to[m];
    const a = panel.rows[panel.deviceRow[t.runs.device[from]]];
    const b = panel.rows[panel.deviceRow[t.runs.device[to]]];
    drawArrow(ctx, panel.x(t.messages.made[m]), a.y + a.h / 2,
      panel.x(t.messages.arrive[m]), b.y + b.h / 2);
  }
}

function drawArrow(ctx, x1, y1, x2, y2) {
  const bend = Math.max(12, Math.min(60, Math.abs(x2 - x1) / 2));
  for (const [color, width] of [[colors.panel, 4], [colors.ink, 1.7]]) {
    ctx.strokeStyle = color;
    ctx.fillStyle = color;
    ctx.lineWidth = width;
    ctx.beginPath();
    ctx.moveTo(x1, y1);
    ctx.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
    ctx.stroke();
    ctx.beginPath();
    ctx.arc(x1, y1, width + 1, 0, 7);
    ctx.fill();
    ctx.beginPath();
    ctx.moveTo(x2 + 1, y2);
    ctx.lineTo(x2 - 7, y2 - 4);
    ctx.lineTo(x2 - 7, y2 + 4);
    ctx.fill();
  }
}
