/* SPDX-License-Identifier: Apache-2.0 */
/* What if? The values of the controls form one line of changes, in the form
 * used in the address ("latency=x2&schedule=zb-h1"). A worker passes that
 * line to the program's C code, compiled to WebAssembly; the page draws the
 * result. */

const asked = JSON.parse($('asked').textContent);

/* --- the worker ------------------------------------------------------------- */

/* Runs in the worker, without access to the rest of this file. Answers the
 * latest request {id, line, methods, points}. A newer request cancels the table
 * of an older one, and the curves, whose latencies are `points`. */
function simulator() {
  const text = new TextDecoder();
  const utf8 = new TextEncoder();
  let c = null;
  let page = 0;
  let latest = null;
  let busy = false;

  const put = (string) => {
    const bytes = utf8.encode(string);
    const at = c.page_alloc(bytes.length + 1);
    if (!at) throw new Error('no memory');
    const memory = new Uint8Array(c.memory.buffer, at, bytes.length + 1);
    memory.set(bytes);
    memory[bytes.length] = 0;
    return at;
  };
  const call = (name, ...strings) => {
    const given = strings.map(put);
    const at = c[name](page, ...given);
    given.forEach((p) => c.page_free(p));
    if (!at) throw new Error('no memory');
    const memory = new Uint8Array(c.memory.buffer);
    const result = text.decode(memory.subarray(at, memory.indexOf(0, at)));
    c.page_free(at);
    return JSON.parse(result);
  };
  const open = async ({ wasm, asked: a }) => {
    const packed = Uint8Array.from(atob(wasm), (x) => x.charCodeAt(0));
    const stream = new Blob([packed]).stream()
      .pipeThrough(new DecompressionStream('gzip'));
    const module = await WebAssembly.compile(
      await new Response(stream).arrayBuffer());
    /* No files and no clock: each of these calls returns an error. */
    const imports = {};
    for (const need of WebAssembly.Module.imports(module))
      (imports[need.module] = imports[need.module] || {})[need.name] = () => 52;
    c = (await WebAssembly.instantiate(module, imports)).exports;
    c._initialize();
    const given = [a.pipeline, a.rows, a.links, a.method].map(put);
    page = c.page_open(...given, a.receives, a.coupled, a.fifo);
    given.forEach((p) => c.page_free(p));
    if (!page) throw new Error('the simulator does not support this pipeline');
    self.postMessage({ controls: call('page_controls') });
  };
  /* null: a newer request has arrived. */
  const rowsOf = async (line, methods) => {
    const rows = [];
    for (const method of methods) {
      await new Promise((resolve) => { setTimeout(resolve); });
      if (latest) return null;
      rows.push(call('page_row', line, method));
    }
    return rows;
  };
  const answer = async ({ id, line, methods, points }) => {
    const from = performance.now();
    const result = call('page_ask', line);
    self.postMessage({ id, answer: result, ms: performance.now() - from });
    if (result.error) return;
    const rows = await rowsOf(line, methods);
    if (!rows) return;
    self.postMessage({ id, rows, ms: performance.now() - from });
    if (points.length)
      await self.sweepLatency(points, (ns) => rowsOf(
        `${line}${line ? '&' : ''}latency=${ns}ns`, methods),
      (told) => self.postMessage({ id, curves: told }));
  };
  self.onmessage = async ({ data: message }) => {
    try {
      if (message.wasm !== undefined) {
        await open(message);
        return;
      }
      latest = message;
      if (busy) return;
      busy = true;
      while (latest) {
        const next = latest;
        latest = null;
        await answer(next);
      }
    } catch (error) {
      self.postMessage({ broken: String(error.message || error) });
    }
    busy = false;
  };
}

/* --- controls --------------------------------------------------------------- */

const ask = { worker: null, controls: null, fields: new Map(), sent: 0,
  line: null, first: null, answer: null };

/* Keys of the address that are not changes. */
const OWN_KEYS = ['theme', 'critical', 'links', 'memory', 'show', 'from', 'to',
  'find', 'check', 'curves', 'quiet'];

/* Converts a slider position to "x1.414"; position 0 means unchanged. */
function factorAt(place) {
  return place === 0 ? '' : 'x' + trim((2 ** place).toFixed(4));
}

function placeOf(text) {
  const m = /^x(\d*\.?\d+)$/.exec(text);
  return m && Number(m[1]) > 0 ? Math.log2(Number(m[1])) : 0;
}

/* A slider and the field that it fills; an empty field means unchanged. */
function factorControl(key, name, placeholder, reach) {
  const slider = el('input', { type: 'range', min: -reach, max: reach,
    step: 0.05, value: 0, 'aria-label': `${name}, as a factor` });
  const field = el('input', { type: 'text', placeholder, 'data-key': key,
    'aria-label': name, spellcheck: 'false', autocomplete: 'off' });
  slider.addEventListener('input', () => {
    field.value = factorAt(Number(slider.value));
    changed();
  });
  field.addEventListener('change', () => {
    slider.value = placeOf(field.value);
    changed();
  });
  ask.fields.set(key, { field, set: (text) => {
    field.value = text;
    slider.value = placeOf(text);
  } });
  return el('label', { class: 'factor' }, el('span', {}, name), slider, field);
}

function plainControl(key, name, field) {
  field.dataset.key = key;
  field.addEventListener('change', changed);
  ask.fields.set(key, { field, set: (text) => { field.value = text; } });
  return el('label', { class: 'plain' }, el('span', {}, name), field);
}

function choice(options) {
  return el('select', {}, ...options.map(([value, name, title]) =>
    el('option', { value, title: title || '' }, name)));
}

/* Returns a link's name in the syntax of a change. */
function inLine(name) {
  return encodeURIComponent(name);
}

function buildControls() {
  const c = ask.controls;
  const top = el('div', { class: 'ask-grid' });
  top.append(plainControl('schedule', 'Schedule', choice([
    ['', `unchanged (${c.method})`],
    ...c.methods.map((m) => [m.name, m.name, m.about])])));
  if (c.links.length)
    top.append(factorControl('latency', 'Latency between sites', 'x2, 20ms', 4),
      factorControl('bandwidth', 'Bandwidth between sites', 'x0.5', 4));
  top.append(factorControl('speed', 'Speed of all devices', 'x0.9', 2));
  if (!c.fixed)
    top.append(plainControl('microbatches', 'Microbatches', el('input', {
      type: 'number', min: 1, max: 1048576, placeholder: c.microbatches })));
  if (c.limits) top.append(factorControl('limit', 'Memory limit', 'x0.8', 2));
  top.append(plainControl('receives', 'Receives are posted', choice([
    ['', `unchanged (${c.receives})`], ['early', 'early'], ['late', 'late'],
    ['late-fd', 'late-fd']])),
  plainControl('coupled', 'Send queue, messages', el('input', {
    type: 'number', min: 0, max: 1048576,
    placeholder: c.coupled || 'uncoupled' })));
  const each = (title, list) => el('details', {}, el('summary', {}, title),
    el('div', { class: 'ask-grid' }, ...list));
  const links = c.links.flatMap((l) => [
    factorControl(`latency.${inLine(l.name)}`, `${l.name}, latency`,
      time(l.latency), 4),
    factorControl(`bandwidth.${inLine(l.name)}`, `${l.name}, bandwidth`,
      l.transfer ? `${time(l.transfer)} each` : 'x0.5', 4)]);
  const devices = [];
  for (let d = 0; d < c.devices && d < 256; d++)
    devices.push(factorControl(`speed.${d}`, `device ${d}, speed`, 'x0.9', 2));
  const button = (id, text, action) => el('button', { type: 'button', id,
    onclick: action }, text);
  $('what-if').append(top, ...[
    links.length > 2 ? each('Each link', links) : null,
    devices.length > 1 ? each('Each device', devices) : null,
    links.length ? curvesBox() : null].filter((box) => box),
    el('div', { class: 'ask-tools' },
      button('ask-reset', 'Reset', reset),
      button('copy-command', 'Copy command', () => copy(command())),
      button('copy-pipeline', 'Copy pipeline file', () => copy(pipelineFile())),
      button('save-pipeline', 'Save pipeline.json',
        () => save('pipeline.json', pipelineFile())),
      button('save-schedule', 'Save schedule.csv', saveSchedule),
      el('output', { id: 'ask-state', 'aria-live': 'polite' })),
    el('p', { id: 'ask-command', class: 'note' }));
  $('save-schedule').hidden = true;
}

/* --- the line of changes ------------------------------------------------------ */

function lineOfFields() {
  return [...ask.fields].map(([key, { field }]) => [key, field.value.trim()])
    .filter(([, value]) => value !== '')
    .map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join('&');
}

function itemsOfAddress(own) {
  return window.location.hash.slice(1).split('&').filter((item) => item !== '' &&
    OWN_KEYS.includes(item.split('=')[0]) === own);
}

function lineOfAddress() {
  return itemsOfAddress(false).join('&');
}

/* Decodes a part of the address; returns malformed text unchanged. */
function decoded(value) {
  try {
    return decodeURIComponent(value);
  } catch (_) {
    return value;
  }
}

/* Sets the controls from a line in the address. The simulator reports keys
 * without a control and invalid values. */
function setFields(line) {
  for (const { set } of ask.fields.values()) set('');
  for (const item of line.split('&')) {
    const [key, value] = item.split('=');
    if (value !== undefined && ask.fields.has(key))
      ask.fields.get(key).set(decoded(value));
  }
}

function changed() {
  const line = lineOfFields();
  const items = [...itemsOfAddress(true), ...(line ? [line] : [])];
  /* A page embedded in another one has no address of its own. */
  if (window.location.protocol !== 'about:')
    window.history.replaceState(null, '', '#' + items.join('&'));
  request(line);
}

function reset() {
  setFields('');
  changed();
}

function request(line) {
  ask.line = line;
  ask.sent++;
  document.documentElement.dataset.asking = '1';
  $('ask-state').textContent = 'simulating';
  if (curvesOpen()) beginCurves();
  ask.worker.postMessage({ id: ask.sent, line, methods: ask.controls.methods
    .filter((m) => m.row).map((m) => m.name),
  points: curvesOpen() ? curvePoints() : [] });
}

/* --- results ------------------------------------------------------------------ */

/* Updates a plan's cards under the changes: [value, more] each. The makespan is
 * that of the pipeline; the rest of the iteration is as planned. Tokens and
 * work scale with the microbatches. */
function planned(makespan) {
  const whole = ask.first.makespan + asked.after;
  const share = ask.answer.file.microbatches / JSON.parse(asked.file).microbatches;
  const ns = makespan + asked.after;
  const [size, unit] = whole < 1e9 ? [1e6, 'ms'] : [1e9, 's'];
  const rate = asked.tokens * share / ns * 1e9;
  const days = 1e12 / rate / 86400;
  const tokens = [Math.round(rate).toLocaleString('en'),
    `tokens/s; ${Number(days.toPrecision(3))} days per trillion`];
  return new Map([
    ['Iteration', [`${(ns / size).toFixed(3)} ${unit}`,
      `pipeline ${time(makespan)}, optimizer and overhead ${time(asked.after)}`]],
    ['Throughput', tokens], ['Tokens per second', tokens],
    ['Model FLOPs utilisation', [`${(100 * asked.mfu * share * whole / ns)
      .toFixed(1)} %`, "of the GPUs' peak"]]]);
}

/* The report's own cards. With changes, a plan's cards are updated, and each
 * shows its previous value. */
function cardsNow(makespan) {
  if (!ask.answer || !ask.line || !asked.tokens) return data.cards;
  const follow = planned(makespan);
  const fixed = ['GPUs', 'Parameters'];
  return data.cards.map(([name, value, more]) => {
    if (fixed.includes(name)) return [name, value, more];
    const now = follow.get(name);
    return now ? [name, now[0], `${now[1]}; as planned ${value}`]
      : [name, value, `as planned; ${more}`];
  });
}

/* Facts of the heading that the changes do not affect. */
function factsNow() {
  const stale = ask.answer && ask.line && asked.tokens
    ? ['iteration', 'cost'] : [];
  return data.facts.map(([name, value]) => [name, stale.includes(name)
    ? `${value}, as planned` : value]);
}

function showAnswer(result, ms) {
  const state = $('ask-state');
  state.classList.toggle('up', Boolean(result.error));
  if (result.error) {
    state.textContent = result.error;
    return;
  }
  ask.answer = result;
  const t = decodeTrace(result.trace);
  if (traces.length > 1)
    t.label = ask.first.label + (ask.line === '' ? '' : ', changed');
  replaceTrace(t, ask.line === '' ? null : ask.first);
  state.textContent = (ask.line === '' ? 'unchanged' :
    `${change(ask.first.makespan, t.makespan)} of ${time(ask.first.makespan)}`) +
    `, simulated in ${ms < 10 ? ms.toFixed(1) : ms.toFixed(0)} ms` +
    (result.fits ? '' : '; over the memory limit');
  $('ask-command').textContent = command();
  $('save-schedule').hidden = !result.schedule;
  showTolerance(result.slack);
}

function showAnswerRows(rows) {
  if (ask.line === '' && data.rows.length > 1) {
    showRows(data.rows, rowsTake());
    return;
  }
  const t = traces[0];
  const now = { method: `${t.label} (shown)`, status: ask.answer.fits ? 'ok'
    : 'over memory', makespan: t.makespan, bubble: idleShare(t),
  peak: Math.max(...t.memory.map((m) => m.max)), why: '' };
  const last = (r) => (r.makespan < 0 ? Infinity : r.makespan);
  showRows([now, ...rows.sort((x, y) => last(x) - last(y) || 0)]);
}

function hear({ data: message }) {
  if (message.broken) {
    $('what-if').append(el('p', { class: 'note', role: 'alert' },
      `The simulator stopped: ${message.broken}`));
    document.documentElement.dataset.asking = '0';
    return;
  }
  if (message.controls) {
    ask.controls = message.controls;
    buildControls();
    askAddress();
    return;
  }
  if (message.id !== ask.sent) return;
  if (message.curves) {
    hearCurves(message.curves);
    return;
  }
  if (message.answer) showAnswer(message.answer, message.ms);
  if (message.rows) showAnswerRows(message.rows);
  if (message.rows || message.answer.error)
    document.documentElement.dataset.asking = '0';
}

/* The delay that the schedule absorbs between devices. */
function showTolerance(slack) {
  $('tolerance').hidden = !slack.length;
  const delay = (ns) => (ns === null ? 'not known' : ns === 'any' ? 'any delay'
    : time(ns));
  const rows = slack.map((s, i) => {
    const over = typeof s.tolerates === 'number' && s.delay > s.tolerates;
    return el('tr', {}, cell(`${i} and ${i + 1}`),
      cell(String(s.warmup), 'num'), cell(String(s.slackness), 'num'),
      cell(delay(s.tolerates), 'num'), cell(time(s.delay), 'num'),
      cell(over ? 'too much' : '', over ? 'up' : ''));
  });
  refill($('tolerance'), el('div', { class: 'panel-head' },
    el('h2', {}, 'Tolerance'), el('p', { class: 'note' },
      'the delay between devices that the schedule absorbs')),
  el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {},
    ...['Between devices', 'Warm-up', 'Slackness', 'Tolerates', 'Delay', '']
      .map((name, i) => el('th', { class: i && name ? 'num' : '',
        scope: 'col' }, name)))), el('tbody', {}, ...rows))));
}

/* --- downloads ---------------------------------------------------------------- */

/* The original pipeline's file, with the changed numbers. */
function pipelineFile() {
  const file = JSON.parse(asked.file);
  const now = ask.answer.file;
  file.microbatches = now.microbatches;
  file.chunks.forEach((chunk, i) => {
    [chunk.F, chunk.D, chunk.W] = now.chunks[i];
  });
  (file.links || []).forEach((link, i) => {
    [link.latency, link.transfer] = now.links[i];
  });
  if (now.limits) file.memory_limit = now.limits;
  else delete file.memory_limit;
  return JSON.stringify(file, null, 1) + '\n';
}

function command() {
  return 'longhaul simulate pipeline.json' +
    (ask.answer.schedule ? ' --schedule schedule.csv' : '') +
    ask.answer.options;
}

async function copy(text) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch (_) {
    const area = el('textarea', {}, text);
    document.body.append(area);
    area.select();
    done = document.execCommand('copy');
    area.remove();
  }
  $('ask-state').textContent = done ? 'copied' : 'this browser cannot copy';
}

function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: 'text/plain' }));
  el('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 600000);
}

function saveSchedule() {
  const [rows, links] = ask.answer.schedule;
  save('schedule.csv', rows);
  if (links) save('schedule.links.csv', links);
}

/* --- start -------------------------------------------------------------------- */

/* Runs when the address has changed or the simulator is ready. */
function askAddress() {
  if (!ask.controls) return;
  const line = lineOfAddress();
  if (ask.sent && line === ask.line) return;
  setFields(line);
  request(line);
  if (itemsOfAddress(true).includes('curves=1') && $('curves-box'))
    $('curves-box').open = true;
}

function wireWhatIf() {
  if (!asked) return;
  const box = $('what-if');
  box.hidden = false;
  box.append(el('div', { class: 'panel-head' }, el('h2', {}, 'What if?'),
    el('p', { class: 'note' },
      'a factor (x2) is relative to the report; the shadow below each row ' +
      'shows the original')));
  [ask.first] = traces;
  if (!$('wasm').textContent) {
    box.append(el('p', { class: 'note' }, 'This build of longhaul lacks ' +
      'the tools for it. With clang, lld, wasi-libc and ' +
      'libclang-rt-14-dev-wasm32 installed (quickstart.sh does) a new build ' +
      'simulates changes here.'));
    return;
  }
  document.documentElement.dataset.asking = '1';
  const code = new Blob([`self.sweepLatency = ${sweepLatency};`,
    `(${simulator})()`], { type: 'text/javascript' });
  ask.worker = new Worker(URL.createObjectURL(code));
  ask.worker.onmessage = hear;
  ask.worker.postMessage({ wasm: $('wasm').textContent, asked });
}
