/* SPDX-License-Identifier: Apache-2.0 */
/* Self-test, enabled by #check=1 in the address: operates the page and writes
 * the results into <script id="check">. */

/* Simulates user input on the first timeline and returns the results. */
function act() {
  const panel = visiblePanels()[0];
  if (!panel || !panel.t.runs.n) return {};
  fit();
  drawNow();
  const box = panel.canvas.getBoundingClientRect();
  const i = panel.t.runs.n >> 1;
  const row = panel.rows[panel.deviceRow[panel.t.runs.device[i]]];
  const middle = () => box.left + panel.x((panel.t.runs.start[i] +
    panel.t.runs.end[i]) / 2);
  const at = {
    bubbles: true, cancelable: true,
    clientX: middle(),
    clientY: box.top + row.y + row.h / 2 - panel.view.scrollTop,
  };
  const result = { pass: passName(panel.t, i) };
  const spans = [];
  const press = (key) => document.dispatchEvent(
    new KeyboardEvent('keydown', { key, bubbles: true }));
  const note = () => spans.push(state.b - state.a);
  note();
  for (let k = 0; k < 12; k++) { /* each wheel step rounds to a whole pixel */
    panel.canvas.dispatchEvent(new WheelEvent('wheel',
      Object.assign({ deltaY: -120 }, at)));
    at.clientX = middle();
  }
  note();
  panel.canvas.dispatchEvent(new PointerEvent('pointermove', at));
  result.tip = $('tip').textContent;
  const from = state.a;
  press('ArrowRight');
  result.panned = state.a > from;
  press('-');
  note();
  press('0');
  note();
  if (hasPath()) press('c');
  result.critical = state.critical;
  panel.canvas.dispatchEvent(new PointerEvent('pointerleave', at));
  result.left = $('tip').hidden;
  return Object.assign(result, { spans });
}

/* Simulates user input on a diagnosis: another step, a remedy, the maps. */
function actOnDiagnosis() {
  if (!data.diagnosis || !traces.length) return null;
  const texts = (selector) => [...document.querySelectorAll(selector)].map(
    (node) => node.textContent);
  const seen = () => ({ step: $('step-text').textContent,
    heads: texts('.trace h3'), ends: traces.map((t) => t.makespan),
    sites: traces.map((t) => t.sites.length), cells: texts('#step-map .cell') });
  const press = (key) => document.activeElement.dispatchEvent(
    new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
  const result = { first: seen(), helps: [] };
  $('step').value = $('step').max;
  $('step').dispatchEvent(new Event('input'));
  result.last = seen();
  for (const button of document.querySelectorAll('#helps button')) {
    button.click();
    result.helps.push(Object.assign(seen(),
      { pressed: button.getAttribute('aria-pressed') }));
  }
  document.querySelector('#helps button[aria-pressed=true]').click();
  result.left = seen();
  document.querySelector('#all-map .cell').focus();
  press('ArrowDown');
  press('ArrowRight');
  result.focused = document.activeElement.title;
  document.activeElement.click();
  result.tip = $('tip').textContent;
  $('step').focus();
  zoom(1 / 2);
  const { a } = state;
  press('ArrowRight');
  result.slides = state.a === a; /* and does not pan */
  press('0');
  return result;
}

/* Counts the shapes drawn on a canvas until the returned function is called.
 * Excludes images: strips of narrow passes use one image per row. */
function countShapes() {
  const names = ['fillRect', 'strokeRect', 'rect', 'lineTo', 'bezierCurveTo',
    'quadraticCurveTo', 'arc', 'fill', 'stroke', 'fillText'];
  const canvas = CanvasRenderingContext2D.prototype;
  const real = names.map((name) => canvas[name]);
  const count = { n: 0, end: () => names.forEach((name, i) => {
    canvas[name] = real[i];
  }) };
  names.forEach((name, i) => {
    canvas[name] = function (...all) {
      count.n++;
      return real[i].apply(this, all);
    };
  });
  return count;
}

/* Returns the pixels between a timeline's end and the longest number beside
 * it. */
function roomBeside(p) {
  p.ctx.font = `11px ${FONT}`;
  return RIGHT - 8 -
    p.ctx.measureText(memory(1023.99 * 2 ** 30, 'bytes')).width;
}

/* Draws many views and records the number of shapes and the resulting
 * pixels. */
function check() {
  const times = [];
  let shapes = 0;
  const drawn = KINDS.map(() => 0);
  const timed = (a, b) => {
    state.a = a;
    state.b = b;
    const from = performance.now();
    drawNow();
    for (const p of visiblePanels()) p.ctx.getImageData(0, 0, 1, 1);
    times.push(performance.now() - from);
    const count = countShapes();
    drawNow();
    count.end();
    shapes = Math.max(shapes, count.n);
  };
  const { a, b } = state;
  if (visiblePanels().length) {
    for (let i = 0; i < 24; i++) {
      const span = end / 1.6 ** (i % 12);
      const middle = end * (0.1 + 0.8 * ((i * 7) % 24) / 24);
      const from = Math.max(0, middle - span / 2);
      timed(from, from + span);
    }
    timed(a, b);
  }
  for (const p of visiblePanels()) {
    const { data: bytes } = p.ctx.getImageData(0, 0, p.canvas.width,
      p.canvas.height);
    for (let i = 0; i < bytes.length; i += 4)
      colors.rgb.forEach((c, k) => {
        drawn[k] += bytes[i] === c[0] && bytes[i + 1] === c[1] &&
          bytes[i + 2] === c[2];
      });
  }
  times.sort((x, y) => x - y);
  const result = {
    ready_ms: ready, median_ms: times[times.length >> 1] || 0,
    max_ms: times[times.length - 1] || 0, views: times.length, shapes,
    pixels: Object.fromEntries(KINDS.map((k, i) => [k, drawn[i]])),
    passes: traces.map((t) => t.runs.n), shown: visiblePanels().length,
    links: panels.map((p) => p.rows.filter((row) => row.type === 'link')
      .map((row) => [row.link.name, row.h])),
    matches: state.matches.map((m) => passName(m.panel.t, m.run)).slice(0, 20),
    match_count: state.matches.length, critical: state.critical,
    tip: $('tip').hidden ? '' : $('tip').textContent,
    view: [a, b], nodes: document.querySelectorAll('*').length,
    sentence: readable('takes 86539949376 bytes more than 86436216832',
      'bytes'),
    beside: Math.min(...panels.map(roomBeside)),
    wide: document.documentElement.scrollWidth > window.innerWidth,
    checksum: traces.map((t) => [t.makespan,
      t.runs.end.reduce((x, y) => Math.max(x, y), 0),
      t.messages.n ? t.messages.arrive[t.messages.n - 1] : 0]),
  };
  result.act = act();
  result.diagnosis = actOnDiagnosis();
  document.body.append(el('script', { type: 'application/json', id: 'check' },
    JSON.stringify(result)));
}
