/* SPDX-License-Identifier: Apache-2.0 */
/* The page: combines the drawings of timeline.js with tables and charts. */

const data = JSON.parse($('data').textContent);
const traces = data.diagnosis ? playedTraces() : data.traces.map(decodeTrace);
let end = Math.max(1, data.diagnosis ? data.diagnosis.longest : 0,
  ...traces.map((t) => t.makespan));
const started = performance.now();

const state = {
  a: 0, b: end, critical: false, links: true, memory: true,
  quiet: false, /* also show idle links */
  matches: [], match: -1, hover: null, pinned: null, cursor: null, over: null,
  printing: false, checked: /\bcheck=1/.test(window.location.hash),
};
const panels = [];

/* --- heading -------------------------------------------------------------- */

/* Keeps numbers and units on one line. */
function together(text) {
  return text.replace(/(\d) (?=(?:s|ms|%|[KMGT]iB|GB)(?![\w/]))/g, '$1\u00a0');
}

function card(name, value, more) {
  return el('div', { class: 'card' }, el('div', { class: 'name' }, name),
    el('div', { class: 'value' }, value),
    el('div', { class: 'more' }, together(more || '\u00a0')));
}

function idleShare(t) {
  const busy = t.tracks.reduce((all, track) => all + track.busy(), 0);
  return t.makespan ? 1 - busy / (t.makespan * t.devices) : 0;
}

/* "+1.5 %" */
function change(from, to) {
  if (from <= 0) return '\u2013';
  const by = to / from - 1;
  if (Math.abs(by) < 0.0005) return '\u00b1' + percent(0);
  return (by < 0 ? '\u2212' : '+') + percent(Math.abs(by));
}

/* Tests whether devices have different memory limits. */
function limitsDiffer(t) {
  return Boolean(t) && t.limit.some((limit) => limit !== t.limit[0]);
}

/* Returns the device with the least free memory; without limits, the one with
 * the highest peak. */
function fullest(t) {
  const limited = t.limit.some((limit) => limit !== null);
  const room = t.memory.map((m, d) => (!limited ? -m.max
    : t.limit[d] === null ? Infinity : t.limit[d] - m.max));
  return room.indexOf(Math.min(...room));
}

/* Returns [cause, time] for a trace, the largest first. */
function causeTotals(t) {
  const n = t.causes.length;
  return t.causes.map((name, c) => {
    let sum = 0;
    for (let d = 0; d < t.devices; d++) sum += t.idle[d * n + c];
    return [name, sum, c];
  }).filter((x) => x[1] > 0).sort((x, y) => y[1] - x[1]);
}

function showHeading() {
  $('facts').replaceChildren(...factsNow().map(([name, value]) =>
    el('div', {}, el('dt', {}, name), el('dd', {}, value))));
  $('foot').textContent = `longhaul ${data.longhaul}`;
  if (data.diagnosis) return diagnosisCards();
  const t = traces[0];
  if (!t) return;
  document.documentElement.dataset.makespanNs = t.makespan;
  const cards = $('cards');
  cards.replaceChildren(card('Makespan', time(t.makespan),
    `${t.label}, ${t.source}`), ...cardsNow(t.makespan)
      .map((texts) => card(...texts)));
  if (data.differences.length) { /* the table lists the individual values */
    cards.append(card(`${traces[1].label} against ${t.label}`,
      change(t.makespan, traces[1].makespan), time(traces[1].makespan)));
    return;
  }
  cards.append(card('Bubble', percent(idleShare(t)),
    `idle, over ${t.devices} device${t.devices > 1 ? 's' : ''}`));
  if (t.hasMemory) {
    const peaks = t.memory.map((m) => m.max);
    const d = fullest(t);
    const limit = t.limit[d];
    const most = peaks.indexOf(Math.max(...peaks));
    cards.append(card('Peak memory', memory(peaks[d], t.unit),
      `on device ${d}` + (limit === null ? ''
        : `, of ${memory(limit, t.unit)}`) + (peaks[most] === peaks[d] ? ''
        : ', which has the least free memory. The highest peak is ' +
          `${memory(peaks[most], t.unit)} on device ${most}` +
          (t.limit[most] === null ? ''
            : `, of ${memory(t.limit[most], t.unit)}`))));
  }
  const wait = longestWait(t);
  if (wait)
    cards.append(card('Longest wait', time(wait.ns),
      `device ${wait.device}, for ${KIND_NAMES[wait.kind]} passes of device ` +
      `${wait.of}: ${percent(wait.ns / t.makespan)} of its time`));
  if (t.linkRows.length) {
    const busiest = t.linkRows.reduce((x, y) =>
      (y.track.busy() > x.track.busy() ? y : x));
    cards.append(card('Busiest link',
      percent(busiest.track.busy() / t.makespan), busiest.name));
  }
  if (traces.length === 2) {
    cards.append(card(`${traces[1].label} against ${t.label}`,
      change(t.makespan, traces[1].makespan), time(traces[1].makespan)));
  } else {
    cards.append(card('Passes', t.runs.n.toLocaleString('en'),
      `${t.messages.n.toLocaleString('en')} messages`));
  }
}

function showLegend() {
  $('legend').replaceChildren();
  const kinds = KINDS.map((_, k) => k).filter((k) =>
    traces.some((t) => (k === 4 ? t.collectives.n > 0 : t.kinds[k])));
  for (const k of kinds)
    $('legend').append(el('span', {},
      el('i', { style: `background:var(--${KINDS[k].toLowerCase()})` }),
      k === 4 ? KIND_NAMES[k] : `${KINDS[k]} ${KIND_NAMES[k]}`));
  if (traces.some((t) => t.linkRows.some((l) => l.waiting.max > 0)))
    $('legend').append(el('span', {},
      el('i', { style: 'background:var(--queue)' }), 'messages waiting'));
  if (traces.some((t) => t.rows.most > 1))
    $('legend').append(el('span', {}, 'a shade for each chunk of a device'));
  if (traces.some((t) => t.path))
    $('legend').append(el('span', {},
      el('i', { style: 'background:var(--critical);height:4px' }),
      'critical path'));
}

/* --- drawing -------------------------------------------------------------- */

let pending = false;

function visiblePanels() {
  return panels.filter((p) => !p.node.hidden);
}

function drawNow() {
  pending = false;
  const shown = visiblePanels();
  for (const panel of shown) panel.draw();
  drawOverview(shown[0]);
}

function draw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(drawNow);
}

function resize() {
  for (const panel of visiblePanels()) panel.resize();
  overview.key = null;
  drawNow();
}

function relayOut() {
  for (const panel of panels) panel.layOut();
  resize();
}

function setView(a, b) {
  const span = Math.min(Math.max(b - a, 20), end * 1.002);
  a = Math.max(0, Math.min(a, end * 1.002 - span));
  state.a = a;
  state.b = a + span;
  draw();
}

function zoom(factor, around) {
  const { a, b } = state;
  if (around === undefined) around = (a + b) / 2;
  setView(around - (around - a) * factor, around + (b - around) * factor);
}

function fit() {
  setView(0, end * 1.002);
}

/* --- the overview: busy devices over the whole iteration ------------------- */

const overview = { key: null, image: document.createElement('canvas') };

function shares(t, n) {
  const kinds = KINDS.map((_, k) => k);
  const sums = kinds.map(() => new Float64Array(n));
  const step = end / n;
  for (const track of t.tracks) {
    for (const k of kinds) {
      if (!track.sums[k]) continue;
      let before = 0;
      let i = 0;
      for (let c = 0; c < n; c++) {
        const at = (c + 1) * step;
        i = above(track.start, at, i, track.n);
        const now = track.before(k, at, i);
        sums[k][c] += (now - before) / step / t.devices;
        before = now;
      }
    }
  }
  return sums;
}

function drawOverview(panel) {
  const canvas = $('overview');
  if (!panel) return;
  const scale = window.devicePixelRatio || 1;
  const w = Math.round(canvas.clientWidth * scale);
  const h = Math.round(40 * scale);
  if (w === 0) return;
  const left = Math.round(LEFT * scale);
  const plot = Math.max(10, w - left - Math.round(RIGHT * scale));
  const key = [w, h, colors.panel, panels.indexOf(panel)].join();
  if (overview.key !== key) {
    overview.key = key;
    overview.image.width = canvas.width = w;
    overview.image.height = canvas.height = h;
    const ctx = overview.image.getContext('2d');
    ctx.fillStyle = colors.track;
    ctx.fillRect(left, 0, plot, h);
    const sums = shares(panel.t, plot);
    for (let c = 0; c < plot; c++) {
      let y = h;
      sums.forEach((sum, k) => {
        const part = sum[c] * h;
        if (part <= 0) return;
        ctx.fillStyle = colors.kinds[k];
        ctx.fillRect(left + c, y - part, 1, part + 0.5);
        y -= part;
      });
    }
    ctx.fillStyle = colors.faint;
    ctx.font = `${11 * scale}px ${FONT}`;
    ctx.textBaseline = 'middle';
    ctx.fillText('busy devices', 12 * scale, h / 2);
  }
  const ctx = canvas.getContext('2d');
  ctx.clearRect(0, 0, w, h);
  ctx.drawImage(overview.image, 0, 0);
  const x = left + state.a / end * plot;
  const right = left + Math.min(1, state.b / end) * plot;
  ctx.fillStyle = colors.panel;
  ctx.globalAlpha = 0.68;
  ctx.fillRect(left, 0, x - left, h);
  ctx.fillRect(right, 0, left + plot - right, h);
  ctx.globalAlpha = 1;
  ctx.strokeStyle = colors.accent;
  ctx.lineWidth = 2 * scale;
  ctx.strokeRect(x, scale, Math.max(3 * scale, right - x), h - 2 * scale);
}

function wireOverview() {
  const canvas = $('overview');
  let from = null;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return (event.clientX - box.left - LEFT) /
      (box.width - LEFT - RIGHT) * end;
  };
  canvas.addEventListener('pointerdown', (event) => {
    canvas.setPointerCapture(event.pointerId);
    const t = at(event);
    const span = state.b - state.a;
    if (span > end * 0.98) {
      from = t; /* select an interval */
      return;
    }
    if (t < state.a || t > state.b) setView(t - span / 2, t + span / 2);
    from = { grab: t - state.a };
  });
  canvas.addEventListener('pointermove', (event) => {
    if (from === null) return;
    const t = at(event);
    if (typeof from === 'number') {
      if (Math.abs(t - from) > end / 200)
        setView(Math.min(t, from), Math.max(t, from));
    } else {
      setView(t - from.grab, t - from.grab + state.b - state.a);
    }
  });
  canvas.addEventListener('pointerup', () => { from = null; });
  canvas.addEventListener('dblclick', fit);
}

/* --- causes of a pass's wait ----------------------------------------------- */

/* Returns {previous, idle, reason, ...} for a run: its latest dependency. */
function waitOf(t, i) {
  const r = t.runs;
  const m = t.messages;
  const first = i === t.first[r.device[i]];
  const free = first ? 0 : r.issued[i - 1];
  const wait = { free, first, idle: r.start[i] - free, message: r.incoming[i],
    collective: -1, at: free, reason: first ? 'start' : 'pass' };
  for (let c = 0; c < t.collectives.n && r.kind[i] !== 2; c++)
    if (!t.collectives.rs[c] && t.collectives.chunk[c] === r.chunk[i] &&
      t.collectives.device[c] === r.device[i] &&
      t.collectives.arrive[c] <= r.start[i] && (wait.collective < 0 ||
      t.collectives.arrive[c] > t.collectives.arrive[wait.collective]))
      wait.collective = c;
  if (wait.collective >= 0 && t.collectives.arrive[wait.collective] > wait.at) {
    wait.at = t.collectives.arrive[wait.collective];
    wait.reason = 'collective';
  }
  if (wait.message >= 0 && m.arrive[wait.message] > wait.at) {
    wait.at = m.arrive[wait.message];
    wait.reason = 'message';
  }
  return wait;
}

function route(t, m) {
  const x = t.messages;
  const link = x.link[m] < 0 ? 'no link' : `link ${t.links[x.link[m]]}`;
  const parts = [];
  if (x.ready[m] > x.made[m])
    parts.push(`receive not posted for ${time(x.ready[m] - x.made[m])}`);
  if (x.depart[m] > x.ready[m])
    parts.push(`queue ${time(x.depart[m] - x.ready[m])}`);
  if (x.sent[m] > x.depart[m])
    parts.push(`transfer ${time(x.sent[m] - x.depart[m])}`);
  if (x.arrive[m] > x.sent[m])
    parts.push(`latency ${time(x.arrive[m] - x.sent[m])}`);
  return `${link}${parts.length ? ': ' + parts.join(', ') : ''}`;
}

function waitText(t, i) {
  const wait = waitOf(t, i);
  const r = t.runs;
  const idle = wait.idle > 0 ? `Idle ${time(wait.idle)} before it. ` : '';
  const out = el('p', { class: 'waited' });
  const from = (m) => `${passName(t, t.messages.from[m])} on device ` +
    `${r.device[t.messages.from[m]]}`;
  if (wait.reason === 'message') {
    out.append(idle, el('strong', {}, `Waited for ${from(wait.message)}`),
      ` by ${route(t, wait.message)}.`);
    const late = r.start[i] - wait.at;
    if (late > 0) out.append(` It had arrived ${time(late)} before the start.`);
  } else if (wait.reason === 'collective') {
    out.append(idle, el('strong', {},
      `Waited for the all-gather of chunk ${r.chunk[i]}`), '.');
  } else if (wait.reason === 'start') {
    out.append(el('strong', {}, 'First on its device'),
      wait.idle > 0 ? `, ${time(wait.idle)} after the start.` : '.');
  } else {
    const held = r.issued[i - 1] > r.end[i - 1]
      ? ` and for its sends (${time(r.issued[i - 1] - r.end[i - 1])})` : '';
    out.append(idle, el('strong', {},
      `Waited for ${passName(t, i - 1)}${held}`), ' on the same device');
    const early = wait.message < 0 ? 0
      : r.start[i] - t.messages.arrive[wait.message];
    if (early > 0)
      out.append(`; its message from ${from(wait.message)} had arrived ` +
        `${time(early)} before.`);
    else if (wait.message >= 0)
      out.append(`; its message from ${from(wait.message)} arrived at the same ` +
        'moment.');
    else out.append('.');
    if (wait.idle > 0 && wait.reason === 'pass' && !t.per)
      out.append(' Nothing recorded explains the idle time.');
  }
  return out;
}

/* --- pointer and keys ----------------------------------------------------- */

let lastScroll = -1e9;

function wire(panel) {
  const { canvas, view } = panel;
  let drag = null;
  canvas.addEventListener('wheel', (event) => {
    if (performance.now() - lastScroll < 200) return; /* let the page scroll */
    const out = event.deltaY > 0;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      const by = (event.deltaX || event.deltaY) *
        (state.b - state.a) / panel.plot;
      setView(state.a + by, state.b + by);
    } else if (out && state.b - state.a >= end && !event.ctrlKey) {
      return; /* already zoomed out: let the page scroll */
    } else {
      const lines = event.deltaMode === 1 ? 18 : 1;
      zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY * lines)) / 300),
        panel.timeAt(event.offsetX));
    }
    event.preventDefault();
  }, { passive: false });
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    drag = { x: event.clientX, y: event.clientY, a: state.a, b: state.b,
      top: view.scrollTop, moved: false };
  });
  canvas.addEventListener('pointermove', (event) => {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    if (drag && (drag.moved || Math.abs(event.clientX - drag.x) > 3 ||
      Math.abs(event.clientY - drag.y) > 3)) {
      drag.moved = true;
      view.classList.add('drag');
      const by = (drag.x - event.clientX) * (drag.b - drag.a) / panel.plot;
      view.scrollTop = drag.top + drag.y - event.clientY;
      $('tip').hidden = true;
      setView(drag.a + by, drag.b + by);
      return;
    }
    state.cursor = x >= LEFT && x <= LEFT + panel.plot ? panel.timeAt(x) : null;
    state.over = panel;
    state.hover = panel.hit(x, y);
    showTip(state.hover, event.clientX, event.clientY);
    draw();
  });
  canvas.addEventListener('pointerup', () => {
    if (drag && !drag.moved && state.hover && state.hover.row &&
      state.hover.row.type === 'fold') toggle('quiet');
    else if (drag && !drag.moved)
      state.pinned = state.hover && (state.hover.run !== undefined ||
        state.hover.message !== undefined) ? state.hover : null;
    drag = null;
    view.classList.remove('drag');
    draw();
  });
  canvas.addEventListener('pointerleave', () => {
    state.cursor = state.hover = state.over = null;
    $('tip').hidden = true;
    draw();
  });
  canvas.addEventListener('dblclick', fit);
  view.addEventListener('scroll', draw);
}

/* Selects the pass before or after the pinned one on its device. Without a
 * pinned pass, starts at the topmost visible device. */
function step(by) {
  const { pinned } = state;
  if (!pinned || pinned.run === undefined) {
    const panel = visiblePanels().find((p) => p.t.runs.n);
    if (!panel) return;
    const { first, rows, runs } = panel.t;
    const d = rows.devices.find((x) => first[x] < first[x + 1]);
    goTo(panel, Math.min(above(runs.end, state.a, first[d], first[d + 1]),
      first[d + 1] - 1));
    return;
  }
  const { t } = pinned.panel;
  const run = pinned.run + by;
  const d = t.runs.device[pinned.run];
  if (run < t.first[d] || run >= t.first[d + 1]) return;
  goTo(pinned.panel, run);
}

function goTo(panel, run) {
  const r = panel.t.runs;
  state.pinned = { panel, run };
  const span = state.b - state.a;
  const middle = (r.start[run] + r.end[run]) / 2;
  if (r.start[run] < state.a || r.end[run] > state.b)
    setView(middle - span / 2, middle + span / 2);
  const row = panel.rows[panel.deviceRow[r.device[run]]];
  if (row.y < panel.view.scrollTop + AXIS ||
    row.y + row.h > panel.view.scrollTop + panel.viewHeight)
    panel.view.scrollTop = row.y - panel.viewHeight / 2;
  draw();
  const box = panel.canvas.getBoundingClientRect();
  showTip(state.pinned, box.left + panel.x(r.end[run]),
    box.top + row.y - panel.view.scrollTop + row.h);
}

function toggle(name, on) {
  state[name] = on === undefined ? !state[name] : on;
  const button = $('toggle-' + name);
  if (button) button.setAttribute('aria-pressed', String(state[name]));
  if (name === 'critical') draw();
  else relayOut();
}

function keys(event) {
  if (event.target === $('find')) {
    if (event.key === 'Escape') $('find').blur();
    if (event.key === 'Enter') nextMatch(event.shiftKey ? -1 : 1);
    return;
  }
  if (event.target === $('step') && /^(Arrow|Home)/.test(event.key)) return;
  if (event.target !== $('step') &&
    ['INPUT', 'SELECT', 'TEXTAREA'].includes(event.target.tagName)) return;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const span = state.b - state.a;
  const actions = {
    ArrowLeft: () => setView(state.a - span / 8, state.b - span / 8),
    ArrowRight: () => setView(state.a + span / 8, state.b + span / 8),
    '+': () => zoom(1 / 1.5), '=': () => zoom(1 / 1.5), '-': () => zoom(1.5),
    w: () => zoom(1 / 1.5), s: () => zoom(1.5),
    a: () => setView(state.a - span / 8, state.b - span / 8),
    d: () => setView(state.a + span / 8, state.b + span / 8),
    0: fit, Home: fit, '/': () => $('find').focus(),
    c: () => hasPath() && toggle('critical'), l: () => toggle('links'),
    m: () => toggle('memory'), q: () => $('toggle-quiet') && toggle('quiet'), '[': () => step(-1), ']': () => step(1),
    Escape: () => { state.pinned = null; $('tip').hidden = true; draw(); },
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

/* --- finding passes ------------------------------------------------------- */

/* "3F7", "F7" (of any chunk), "3F" (of any microbatch), "0W3:2". */
function parsePattern(text) {
  const m = /^\s*(\d*)\s*([FIDWB])\s*(\d*)(?::(\d+)(?:\/\d+)?)?\s*$/i
    .exec(text);
  if (!m || (m[1] === '' && m[3] === '')) return null;
  const number = (s) => (s === undefined || s === '' ? -1 : Number(s));
  return { chunk: number(m[1]), mb: number(m[3]), part: number(m[4]),
    kind: KINDS.indexOf(m[2].toUpperCase().replace('I', 'D')) };
}

function find(text) {
  const pattern = parsePattern(text);
  state.matches = [];
  state.match = -1;
  state.pinned = null;
  $('tip').hidden = true;
  if (pattern) {
    for (const panel of visiblePanels()) {
      const r = panel.t.runs;
      for (let i = 0; i < r.n; i++)
        if (r.kind[i] === pattern.kind &&
          (pattern.chunk < 0 || r.chunk[i] === pattern.chunk) &&
          (pattern.mb < 0 || r.mb[i] === pattern.mb) &&
          (pattern.part < 0 || r.part[i] === pattern.part))
          state.matches.push({ panel, run: i });
    }
    state.matches.sort((x, y) =>
      x.panel.t.runs.start[x.run] - y.panel.t.runs.start[y.run]);
  }
  const n = state.matches.length;
  $('found').textContent = text.trim() === '' ? ''
    : !pattern ? 'as 3F7' : n === 0 ? 'none' : `${n} found`;
  if (n === 1 || (n > 0 && n === visiblePanels().length)) nextMatch(1);
  draw();
}

function nextMatch(by) {
  const n = state.matches.length;
  if (!n) return;
  state.match = (state.match + by + n) % n;
  const { panel, run } = state.matches[state.match];
  const r = panel.t.runs;
  const span = Math.max(r.end[run] - r.start[run], 1) * 24;
  if (state.b - state.a > span * 4) {
    const middle = (r.start[run] + r.end[run]) / 2;
    setView(middle - span / 2, middle + span / 2);
  }
  $('found').textContent = `${state.match + 1} of ${n}`;
  goTo(panel, run);
}

/* --- toolbar -------------------------------------------------------------- */

function hasPath() {
  return traces.some((t) => t.path !== null);
}

function pressButton(id, text, title, on, action) {
  return el('button', { id, type: 'button', title, 'aria-pressed': String(on),
    onclick: action }, text);
}

/* The button is enabled only if such links exist. */
function showQuiet() {
  const button = $('toggle-quiet');
  if (button)
    button.hidden = !traces.some((t) => t.linkRows.some((l) => l.quiet));
}

function wireToolbar() {
  const add = (name, text, title) => $('toggles').append(pressButton(
    'toggle-' + name, text, title, state[name], () => toggle(name)));
  if (hasPath()) add('critical', 'Critical path', 'Composition of the makespan (c)');
  if (traces.some((t) => t.linkRows.length)) add('links', 'Links', 'Messages on the links (l)');
  if (traces.some((t) => t.linkRows.length)) {
    add('quiet', 'Quiet links', 'Rarely used links (q)');
    showQuiet();
  }
  if (traces.some((t) => t.hasMemory)) add('memory', 'Memory', 'Memory over time (m)');
  if (traces.length > 1)
    panels.forEach((panel, i) => $('shown').append(pressButton(
      'show-' + i, panel.t.label, `Show or hide this timeline (${panel.t.source})`,
      !panel.node.hidden, () => show(i, panel.node.hidden))));
  $('zoom-in').onclick = () => zoom(1 / 2);
  $('zoom-out').onclick = () => zoom(2);
  $('fit').onclick = fit;
  $('find').addEventListener('input', () => find($('find').value));
}

/* Keeps at least one visible. */
function show(i, on) {
  if (!on && visiblePanels().length === 1) return;
  panels[i].node.hidden = !on;
  $('show-' + i).setAttribute('aria-pressed', String(on));
  resize();
}

/* --- theme and print ------------------------------------------------------ */

const prefersDark = window.matchMedia('(prefers-color-scheme: dark)');

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  readColors();
  resize();
}

function wireTheme() {
  $('theme').onclick = () => setTheme(
    document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
  prefersDark.addEventListener('change', (event) =>
    setTheme(event.matches ? 'dark' : 'light'));
  let before = null;
  const printing = (on) => {
    if (on) before = document.documentElement.dataset.theme;
    state.printing = on;
    setTheme(on ? 'light' : before);
  };
  window.addEventListener('beforeprint', () => printing(true));
  window.addEventListener('afterprint', () => printing(false));
  $('print').onclick = () => window.print();
}

/* --- the address: #find=3F7&critical=1&from=0.1&to=0.2&theme=dark ---------- */

/* `from` and `to` are shares of the total time. */
function applyAddress() {
  const want = new URLSearchParams(window.location.hash.slice(1));
  if (want.has('theme')) setTheme(want.get('theme') === 'dark' ? 'dark' : 'light');
  for (const name of ['critical', 'links', 'memory', 'quiet'])
    if (want.has(name)) toggle(name, want.get(name) === '1');
  applyPlayed(want);
  if (want.has('show') && panels.length > 1) {
    const shown = want.get('show').split(',').map(Number);
    panels.forEach((_, i) => shown.includes(i) && show(i, true));
    panels.forEach((_, i) => !shown.includes(i) && show(i, false));
  }
  if (want.has('from') || want.has('to'))
    setView((Number(want.get('from')) || 0) * end,
      (Number(want.get('to')) || 1) * end);
  if (want.has('find') && panels.length) {
    $('find').value = want.get('find');
    find($('find').value);
  }
  askAddress();
  if (state.checked) check();
}

/* --- replacing the trace ----------------------------------------------------- */

/* Shows `t` in place of the first trace, with `ghost` (or null) as the previous
 * one behind it. */
function replaceTrace(t, ghost) {
  const all = state.b - state.a >= end;
  traces[0] = t;
  panels[0].t = t;
  panels[0].ghost = ghost;
  end = Math.max(1, ...traces.map((x) => x.makespan), ghost ? ghost.makespan : 0);
  Object.assign(state, { hover: null, pinned: null, matches: [], match: -1 });
  $('tip').hidden = true;
  showHeading();
  showLegend();
  showVersus();
  showIdle();
  showLinks();
  showQuiet();
  relayOut();
  if (all) fit();
  else setView(state.a, state.b);
  if ($('find').value) find($('find').value);
}

/* --- start ---------------------------------------------------------------- */

traces.forEach((t, i) => {
  const panel = new Panel(t, state);
  const source = t.source === t.label ? '' : `${t.source}, `;
  if (traces.length > 1)
    panel.node.prepend(el('h3', {}, t.label, el('small', {},
      `${source}makespan ${time(t.makespan)}, bubble ` +
      percent(idleShare(t)))));
  panel.node.hidden = traces.length > 2 && i > 0;
  panels.push(panel);
  $('stack').append(panel.node);
});
$('timeline').hidden = panels.length === 0;
showHeading();
showLegend();
showDecision(data.decision);
showReasons();
showMemory(data.memory);
showVaried(data.varied);
showDifferences(data.differences);
showRows(data.rows, rowsTake());
if (data.diagnosis) showDiagnosis();
else showVersus();
showIdle();
showSweeps();
showLinks();
wireToolbar();
wireOverview();
panels.forEach(wire);
document.documentElement.dataset.theme = prefersDark.matches ? 'dark' : 'light';
readColors();
fit();
wireTheme();
resize();
const ready = performance.now() - started;
window.addEventListener('resize', resize);
window.addEventListener('scroll', () => { lastScroll = performance.now(); });
document.addEventListener('keydown', keys);
window.addEventListener('hashchange', applyAddress);
applyAddress();
wireWhatIf();
wireFolding();
if (data.decision) foldDetails();
