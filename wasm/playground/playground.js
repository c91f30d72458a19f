/* SPDX-License-Identifier: Apache-2.0 */
/* The page: a job as a form and as YAML; a worker runs the program to plan
 * it. */

const $ = (id) => document.getElementById(id);
const root = document.documentElement;

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (typeof value === 'function') node[key] = value;
    else if (value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

const presets = JSON.parse($('presets-data').textContent);
const state = { program: null, reader: null, planner: null, text: '',
  values: [], error: null, job: null, beside: new Map(), sent: 0, read: 0,
  result: null, frame: null, began: 0, words: null, explored: 0,
  open: new Set(['model', 'training', 'cluster', 'framework', 'layout']) };

/* --- the program -------------------------------------------------------------- */

async function unpackProgram() {
  const bytes = Uint8Array.from(atob($('wasm').textContent),
    (x) => x.charCodeAt(0));
  const stream = new Blob([bytes]).stream()
    .pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).arrayBuffer();
}

function startWorker(hear) {
  const code = new Blob([`(${programWorker})()`], { type: 'text/javascript' });
  const worker = new Worker(URL.createObjectURL(code));
  worker.onmessage = ({ data: told }) => hear(told);
  worker.postMessage({ wasm: state.program });
  return worker;
}

/* Files that the program can read: the job and dropped files. */
function jobFiles() {
  return [...state.beside, ['job.yaml', utf8.encode(state.text)]];
}

/* --- parsing during editing ----------------------------------------------------- */

function read() {
  state.sent++;
  root.dataset.reading = '1';
  state.reader.postMessage({ id: state.sent, args: ['longhaul', 'read',
    'job.yaml'], files: jobFiles() });
}

function hearRead(told) {
  if (told.ready || told.id < state.sent) return;
  root.dataset.reading = '0';
  if (told.broken || told.code !== 0) {
    say('told', told.broken || told.err, true);
    return;
  }
  const found = JSON.parse(told.out);
  if (!state.words) {
    state.words = found;
    fillWords(found);
  }
  state.values = found.values;
  state.job = found.job;
  state.error = found.error && errorAt(found.error);
  showForm();
  showError();
  const { job } = state;
  say('told', !job ? state.error.text
    : `${job.model}: ${(job.parameters / 1e9).toFixed(1)} billion parameters; ` +
      `${job.gpus.toLocaleString('en')} GPUs in ${job.datacenters} ` +
      `datacenter${job.datacenters > 1 ? 's' : ''}; ` +
      `${(job.tokens / 1e6).toFixed(1)} million tokens in an iteration`, !job);
  if (!state.planner) $('plan').disabled = !job;
  if (job) openJob();
  if (state.whenRead) state.whenRead();
  state.whenRead = null;
}

function say(id, text, wrong) {
  $(id).textContent = text;
  $(id).classList.toggle('up', Boolean(wrong));
}

/* Reads the text at once; resolves when the program has answered. */
function readNow() {
  clearTimeout(delay);
  read();
  remember();
  return new Promise((resolve) => { state.whenRead = resolve; });
}

let delay = 0;

function edited() {
  state.text = $('text').value;
  showLines();
  $('flag').hidden = true;
  clearTimeout(delay);
  root.dataset.reading = '1';
  delay = setTimeout(() => {
    read();
    remember();
  }, 120);
}

/* After a change by the form or from a file. */
function setText(text) {
  $('text').value = text;
  edited();
}

/* --- the text ------------------------------------------------------------------ */

function showLines() {
  const n = state.text.split('\n').length;
  const wrong = state.error ? state.error.line : 0;
  $('gutter').replaceChildren(...Array.from({ length: n }, (_, i) =>
    el('div', { class: i + 1 === wrong ? 'bad' : '' }, String(i + 1))));
  /* The text is as high as its lines, so that only the page scrolls. */
  $('text').rows = n + 1;
}

function placeFlag() {
  const { error } = state;
  $('flag').hidden = !error;
  $('flag').style.top = `${error && error.line ? 10 + 20 * error.line : 10}px`;
}

function showError() {
  showLines();
  $('flag').textContent = state.error ? state.error.text : '';
  placeFlag();
}

/* --- the form ------------------------------------------------------------------- */

/* Optional keys of each part of a job, with their initial values. */
const OPTIONAL = {
  training: { precision: 'bf16', optimizer: 'adamw', zero: '1',
    recompute: 'none', dispatcher: 'deepep', dropout: 'false',
    rings: 'pipelined' },
  framework: { preset: 'megatron', attention: 'fused',
    sequence_parallel: 'true', gradients: 'fp32', reduce: 'fp32',
    receives: 'late', fp8: 'matmul', experts: 'grouped' },
  cluster: { memory_reserve: '6%', usd_per_gpu_hour: '2.5', usd_per_gb: '0.02' },
  layout: { tensor: '8', context: '1', expert: '1', pipeline: '4', data: '8',
    micro_batch: '1', chunks_per_device: '1', outermost: 'pipeline',
    sharding: 'full', schedule: '1f1b', framework: 'megatron' },
};

/* Choices of keys with a fixed set of values. */
const WORDS = {
  precision: ['bf16', 'fp16', 'fp32'], optimizer: ['adamw', 'adam'],
  zero: ['0', '1', '2', '3'], recompute: ['none', 'selective', 'full'],
  dispatcher: ['alltoall', 'deepep', 'hybridep', 'allgather'],
  rings: ['lockstep', 'pipelined'],
  attention: ['fused', 'unfused', 'flash-attention-2', 'cudnn', 'cudnn-fp8'],
  kernels: ['fused', 'eager'], loss: ['fused', 'eager', 'chunked'],
  gradients: ['fp32', 'bf16', 'fp16'],
  reduce: ['fp32', 'bf16', 'fp16'], receives: ['early', 'late', 'late-fd'],
  fp8: ['none', 'matmul', 'dispatch', 'head'], experts: ['grouped', 'fused'],
  outermost: ['pipeline', 'data', 'mixed'],
  sharding: ['full', 'hybrid', 'hybrid-leaders'],
  framework: ['any', 'longhaul', 'megatron', 'torchtitan', 'pytorch'],
  dropout: ['true', 'false'], sequence_parallel: ['true', 'false'],
};

function fillWords({ models, gpus, methods }) {
  const lists = { ...WORDS, model: models, gpu: gpus, schedule: methods,
    'framework-preset': ['none', 'megatron', 'torchtitan', 'deepspeed'] };
  for (const [name, words] of Object.entries(lists))
    document.body.append(el('datalist', { id: `words-${name}` },
      ...words.map((word) => el('option', { value: word }))));
  $('new-model').setAttribute('list', 'words-model');
}

function wordsOf(path) {
  const key = keyOf(path);
  const list = path === 'framework.preset' ? 'framework-preset'
    : path === 'model.preset' ? 'model'
      : key === 'preset' ? 'gpu' : key;
  return document.getElementById(`words-${list}`) ? `words-${list}` : undefined;
}

/* Values edited in one field: scalars, and lists of scalars. */
function fieldValues() {
  const inLists = new Set();
  const out = [];
  for (const v of state.values) {
    const inside = state.values.filter((o) => holder(o.path) === v.path &&
      o !== v);
    if (v.kind === 'list' && v.flow && inside.every((o) => o.kind === 'scalar')) {
      inside.forEach((o) => inLists.add(o));
      out.push({ ...v, value: Array.from(state.text).slice(v.start, v.end)
        .join('') });
    } else if (v.kind === 'scalar' && !inLists.has(v)) {
      out.push(v);
    }
  }
  return out.filter((v) => v.path !== 'longhaul');
}

function change(path, value) {
  const v = valueAt(state.values, path);
  const now = v.kind === 'list' ? spliced(state.text, v.start, v.end, value)
    : withValue(state.text, state.values, path, value);
  setText(now);
}

function fieldOf(v, from) {
  const name = v.path.slice(from.length).replace(/^\./, '') || v.path;
  const wrong = state.error && state.error.key === v.path;
  const input = el('input', { type: 'text', 'data-path': v.path,
    list: wordsOf(v.path), autocomplete: 'off', spellcheck: 'false',
    'aria-label': v.path, 'aria-invalid': wrong ? 'true' : undefined,
    onchange: () => change(v.path, input.value.trim()) });
  input.value = v.value;
  return el('label', { class: v.kind === 'list' || v.path === 'model'
    ? 'field wide' : 'field' }, el('span', {}, name), input,
  holder(v.path) === v.path || /\]$/.test(v.path) ? el('i') : el('button', {
    type: 'button', title: `Leave ${v.path} out`, 'data-leave': v.path,
    'aria-label': `leave ${v.path} out`,
    onclick: () => setText(withoutKey(state.text, state.values, v.path)) },
  '\u00d7'), wrong ? el('span', { class: 'why' }, state.error.text) : null);
}

function adderOf(part) {
  const absent = Object.keys(OPTIONAL[part] || {})
    .filter((key) => !valueAt(state.values, `${part}.${key}`));
  if (!absent.length) return null;
  const select = el('select', { class: 'adds', 'data-add': part,
    'aria-label': `Add a key to ${part}`, onchange: () => setText(
      withKey(state.text, state.values, `${part}.${select.value}`,
        OPTIONAL[part][select.value])) },
  el('option', { value: '' }, `add to ${part} \u2026`),
  ...absent.map((key) => el('option', {}, key)));
  return select;
}

function partOf(name, all) {
  const mine = all.filter((v) => v.path === name ||
    v.path.startsWith(`${name}.`) || v.path.startsWith(`${name}[`));
  const groups = new Map();
  for (const v of mine) {
    const item = /^.*\]/.exec(holder(v.path));
    const group = item ? item[0] : name;
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push(v);
  }
  const wrong = state.error && state.error.key &&
    mine.some((v) => v.path === state.error.key);
  const box = el('details', { class: 'part', 'data-part': name,
    open: wrong || state.open.has(name) ? '' : undefined,
    ontoggle: () => { state.open[box.open ? 'add' : 'delete'](name); } },
  el('summary', {}, name));
  for (const [group, list] of groups)
    box.append(...(group === name ? [] : [el('h3', {}, group)]),
      el('div', { class: 'fields' }, ...list.map((v) =>
        fieldOf(v, group === v.path ? holder(v.path) : group))));
  const adder = adderOf(name);
  if (adder) box.append(adder);
  return box;
}

function showForm() {
  const all = fieldValues();
  const names = [...new Set(all.map((v) => /^[^.[]*/.exec(v.path)[0]))];
  for (const name of ['training', 'cluster', 'framework', 'layout'])
    if (!names.includes(name)) names.push(name);
  const focus = document.activeElement && document.activeElement.dataset &&
    document.activeElement.dataset.path;
  $('form').replaceChildren(...names.map((name) => partOf(name, all)));
  if (focus) {
    const again = $('form').querySelector(`[data-path="${CSS.escape(focus)}"]`);
    if (again) again.focus({ preventScroll: true });
  }
}

/* --- a new job ------------------------------------------------------------------- */

const NEW = { model: ['Model', 'llama3-70b'],
  'latency-ms': ['Latency between datacenters, ms', '20'],
  'link-gbps': ['Bandwidth between them, Gb/s', '3200'],
  sequence: ['Tokens of a sequence', '8192'] };

/* Columns of the datacenters: option, name, word list. */
const SITE = [['gpu', 'GPU', 'words-gpu'], ['nodes', 'Nodes'],
  ['gpus-per-node', 'GPUs per node']];

function siteRows() {
  return [...$('new-sites').rows];
}

function nameSites() {
  const rows = siteRows();
  rows.forEach((row, i) => {
    row.cells[0].textContent = String(i + 1);
    SITE.forEach(([, name], k) => row.cells[k + 1].firstChild
      .setAttribute('aria-label', `${name}, datacenter ${i + 1}`));
    row.cells[SITE.length + 1].firstChild.disabled = rows.length === 1;
  });
}

function addSite(values) {
  const inputs = SITE.map(([, , list], k) => {
    const input = el('input', { type: 'text', list, autocomplete: 'off',
      spellcheck: 'false' });
    input.value = values[k];
    return input;
  });
  const row = el('tr', {}, el('td'), ...inputs.map((input) =>
    el('td', {}, input)), el('td', {}, el('button', { type: 'button',
    'aria-label': 'remove this datacenter', onclick: () => {
      row.remove();
      nameSites();
    } }, '\u00d7')));
  $('new-sites').append(row);
  nameSites();
}

function buildNew() {
  for (const [key, [name, value]] of Object.entries(NEW)) {
    const input = el('input', { type: 'text', id: `new-${key}`,
      autocomplete: 'off', spellcheck: 'false' });
    input.value = value;
    $('new-fields').append(el('label', { class: 'plain' },
      el('span', {}, name), input));
  }
  addSite(['h100-sxm', '16', '8']);
  addSite(['h100-sxm', '16', '8']);
  $('add-site').onclick = () => {
    const rows = siteRows();
    addSite(SITE.map((_, k) =>
      rows[rows.length - 1].cells[k + 1].firstChild.value));
  };
}

function makeNew() {
  const rows = siteRows();
  const args = ['longhaul', 'init', '--sites', String(rows.length)];
  for (const key of Object.keys(NEW)) {
    const value = $(`new-${key}`).value.trim();
    const between = key === 'latency-ms' || key === 'link-gbps';
    if (value !== '' && !(between && rows.length === 1))
      args.push(`--${key}`, value);
  }
  SITE.forEach(([key], k) => {
    const values = rows.map((row) => row.cells[k + 1].firstChild.value.trim());
    if (values.some((value) => value !== ''))
      args.push(`--${key}`, new Set(values).size === 1 ? values[0]
        : values.join(','));
  });
  const worker = startWorker((told) => {
    if (told.ready) return;
    worker.terminate();
    const wrong = told.broken || (told.code !== 0 && told.err);
    say('new-state', wrong ? wrong.replace(/\nTry [^]*/, '') : '', wrong);
    if (!wrong) setText(told.out);
  });
  worker.postMessage({ id: 0, args, files: [...state.beside] });
}

/* --- planning ------------------------------------------------------------------- */

/* Seconds for the quick plans, which are shown until the requested one is
 * ready. */
const QUICK_S = ['0.4', '1.5', '4'];

function planArgs(effort) {
  const args = ['longhaul', 'plan', 'job.yaml', '-o', 'plan.json', '--html',
    'report.html'];
  const add = (name, value) => { if (value) args.push(name, value); };
  add('--effort', effort);
  add('--for', $('target').value);
  add('--what-if', $('what-if').value.trim());
  if ($('sensitivity').checked) args.push('--sensitivity');
  if ($('pareto').checked) args.push('--pareto');
  return args;
}

/* Arguments of a quick plan: no optimal schedules and no questions. */
function quickArgs(s) {
  const args = ['longhaul', 'plan', 'job.yaml', '-o', 'plan.json', '--html',
    'report.html', '--time', s, '--no-optimal'];
  if ($('target').value) args.push('--for', $('target').value);
  return args;
}

function seconds() {
  return `${((performance.now() - state.began) / 1000).toFixed(1)} s`;
}

function ended(how) {
  state.planner = null;
  $('cancel').hidden = true;
  $('plan').disabled = !state.job;
  root.dataset.plan = how;
}

/* Runs the program with each of `runs` in turn; every result replaces the one
 * before. */
function plan() {
  const runs = [...QUICK_S.map(quickArgs), planArgs($('effort').value)];
  state.began = performance.now();
  root.dataset.plan = 'running';
  delete root.dataset.quickMs;
  $('plan').disabled = true;
  $('cancel').hidden = false;
  say('progress', 'planning');
  const files = jobFiles();
  let shown = '';
  const worker = startWorker((told) => {
    if (told.ready || state.planner !== worker) return;
    if (told.progress !== undefined) {
      say('progress', `${shown}${told.progress}; ${seconds()}`);
      return;
    }
    const last = told.id === runs.length - 1;
    if (told.broken || told.code !== 0) {
      if (!last) { /* the complete search reports the reason */
        worker.postMessage({ id: told.id + 1, args: runs[told.id + 1], files });
        return;
      }
      worker.terminate();
      say('progress', (told.broken || told.err)
        .replace(/^longhaul: /, '').replace(/\nTry [^]*/, ''), true);
      ended('failed');
      return;
    }
    showPlan(told, runs[told.id]);
    if (last) {
      worker.terminate();
      ended('done');
      return;
    }
    if (root.dataset.quickMs === undefined)
      root.dataset.quickMs = Math.round(performance.now() - state.began);
    shown = `quick plan below, after ${seconds()}; improving: `;
    say('progress', shown);
    worker.postMessage({ id: told.id + 1, args: runs[told.id + 1], files });
  });
  state.planner = worker;
  worker.postMessage({ id: 0, args: runs[0], files });
}

function cancel() {
  state.planner.terminate();
  say('progress', `cancelled after ${seconds()}`);
  ended('cancelled');
}

/* Makes the frame as high as its page, so that only the outer page scrolls. */
function fitFrame(frame) {
  const page = frame.contentDocument;
  if (!page || !page.body) return;
  const fit = () => {
    frame.style.height = `${page.documentElement.offsetHeight + 4}px`;
  };
  new ResizeObserver(fit).observe(page.body);
  fit();
}

function showPlan({ out, err, files, ms }, args) {
  const made = new Map(files);
  state.result = { plan: made.get('plan.json'),
    report: made.get('report.html') };
  const found = JSON.parse(fromUtf8.decode(state.result.plan));
  root.dataset.iterationNs = Math.round(found.iteration_s * 1e9);
  say('progress', `planned in ${(ms / 1000).toFixed(1)} s` +
    (err ? `; ${err.replace(/^longhaul: /gm, '').trim()}` : ''));
  $('screen-box').hidden = $('results').hidden = $('result').hidden = false;
  $('screen').textContent = out;
  $('command').textContent = args.join(' ');
  const old = $('result').firstChild;
  const frame = el('iframe', { title: 'Report of the plan' });
  if (old) frame.style.height = old.style.height; /* the page keeps its place */
  frame.srcdoc = fromUtf8.decode(state.result.report);
  state.frame = null;
  frame.onload = () => {
    state.frame = frame;
    setTheme(root.dataset.theme);
    fitFrame(frame);
  };
  $('result').replaceChildren(frame);
  setSliders(found);
}

/* --- files ------------------------------------------------------------------------ */

function save(name, data, type) {
  const url = URL.createObjectURL(new Blob([data], { type }));
  el('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 600000);
}

function showBeside() {
  $('beside').hidden = !state.beside.size;
  $('beside').textContent = `Beside the job: ${[...state.beside.keys()]
    .join(', ')}`;
}

/* A job or a plan opens in the editor; other files are stored beside it. */
async function takeFiles(list) {
  for (const file of list) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    const text = fromUtf8.decode(bytes);
    if (/^\s*["']?longhaul["']?\s*:\s*["']?job\//m.test(text) &&
      !/"plan\//.test(text.slice(0, 4096)))
      setText(text);
    else state.beside.set(file.name, bytes);
  }
  showBeside();
  if (state.beside.size) read();
}

/* --- the address ------------------------------------------------------------------- */

async function remember() {
  const { text } = state;
  const known = presets.find((p) => p.text === text);
  $('presets').value = known ? known.name : '';
  const items = known ? `preset=${encodeURIComponent(known.name)}`
    : `job=${await packed(text)}`;
  if (text === state.text) window.history.replaceState(null, '', `#${items}`);
}

async function openAddress() {
  const items = new Map(window.location.hash.slice(1).split('&')
    .map((item) => item.split('=')));
  if (items.has('theme')) setTheme(items.get('theme'));
  try {
    if (items.has('job')) return setText(await unpacked(items.get('job')));
    const name = decodeURIComponent(items.get('preset') || presets[0].name);
    const preset = presets.find((p) => p.name === name);
    if (preset) return setText(preset.text);
    say('told', `there is no example ${name}`, true);
  } catch (_) {
    say('told', 'the job in the address cannot be read', true);
  }
  return undefined;
}

async function share() {
  const link = window.location.href.replace(/#.*/, '') +
    `#job=${await packed(state.text)}`;
  try {
    await navigator.clipboard.writeText(link);
    say('told', 'copied');
  } catch (_) {
    window.location.hash = link.replace(/^[^#]*/, '');
    say('told', 'this browser does not copy: the address above is the link');
  }
}

/* --- start ------------------------------------------------------------------------- */

function setTheme(name) {
  root.dataset.theme = name;
  if (state.frame) state.frame.contentWindow.location.hash = `theme=${name}`;
}

function wirePage() {
  $('presets').append(el('option', { value: '' }, 'own'),
    ...presets.map(({ name }) => el('option', {}, name)));
  $('presets').onchange = () => {
    const preset = presets.find((p) => p.name === $('presets').value);
    if (preset) setText(preset.text);
  };
  $('text').addEventListener('input', edited);
  $('form').addEventListener('submit', (event) => event.preventDefault());
  $('theme').onclick = () =>
    setTheme(root.dataset.theme === 'dark' ? 'light' : 'dark');
  $('open').onclick = () => $('files').click();
  $('files').onchange = () => takeFiles($('files').files);
  $('save-job').onclick = () => save('job.yaml', state.text, 'text/plain');
  $('share').onclick = share;
  $('make').onclick = makeNew;
  $('plan').onclick = plan;
  $('cancel').onclick = cancel;
  $('save-plan').onclick = () =>
    save('plan.json', state.result.plan, 'application/json');
  $('save-report').onclick = () =>
    save('report.html', state.result.report, 'text/html');
  document.addEventListener('dragover', (event) => {
    event.preventDefault();
    document.body.classList.add('drop');
  });
  document.addEventListener('dragleave', () =>
    document.body.classList.remove('drop'));
  document.addEventListener('drop', (event) => {
    event.preventDefault();
    document.body.classList.remove('drop');
    takeFiles(event.dataTransfer.files);
  });
}

async function begin() {
  const prefersDark = window.matchMedia('(prefers-color-scheme: dark)');
  setTheme(prefersDark.matches ? 'dark' : 'light');
  prefersDark.addEventListener('change', (event) =>
    setTheme(event.matches ? 'dark' : 'light'));
  buildNew();
  buildSliders();
  wirePage();
  state.program = await unpackProgram();
  state.reader = startWorker(hearRead);
  state.explorer = startWorker(hearMemory);
  await openAddress();
  window.addEventListener('hashchange', openAddress);
}

begin();
