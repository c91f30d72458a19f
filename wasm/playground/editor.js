/* SPDX-License-Identifier: Apache-2.0 */
/* Edits single values in a job's text and preserves everything else: comments,
 * order, style. `values` is the output of the program's `read` for the text;
 * positions count characters. */

const utf8 = new TextEncoder();
const fromUtf8 = new TextDecoder();

function spliced(text, from, to, put) {
  const chars = Array.from(text);
  return chars.slice(0, from).join('') + put + chars.slice(to).join('');
}

function valueAt(values, path) {
  return values.find((v) => v.path === path);
}

/* Returns the path of the map or list that contains a value; '' is the whole
 * job. */
function holder(path) {
  return path.replace(/(\.[^.[\]]+|\[\d+\]|^[^.[\]]+)$/, '');
}

function keyOf(path) {
  return path.slice(holder(path).length).replace(/^\./, '');
}

/* Formats a value for YAML: plain if that parses as the same value, else
 * quoted. */
function written(value) {
  if (/^[[{].*[\]}]$/.test(value)) return value;
  return /^[\w./+%-][\w./+%:@ -]*$/.test(value) && !/: |\s$|:$/.test(value)
    ? value : JSON.stringify(value);
}

function withValue(text, values, path, value) {
  const v = valueAt(values, path);
  const quoted = v.kind === 'scalar' && v.flow;
  return spliced(text, v.start, v.end,
    quoted ? JSON.stringify(value) : written(value));
}

/* Inserts a key into a map, which is created if it does not exist. */
function withKey(text, values, path, value) {
  const map = valueAt(values, holder(path));
  const line = `${keyOf(path)}: ${value}`;
  if (!map)
    return `${text.replace(/\n*$/, '\n')}${holder(path)}: {${line}}\n`;
  if (map.kind === 'scalar')
    return spliced(text, map.start, map.end, `{${line}}`);
  if (!map.flow)
    return spliced(text, map.start, map.start,
      `${line}\n${' '.repeat(map.column)}`);
  const empty = !values.some((v) => holder(v.path) === map.path);
  return spliced(text, map.start + 1, map.start + 1,
    line + (empty ? '' : ', '));
}

function withoutKey(text, values, path) {
  const v = valueAt(values, path);
  const map = valueAt(values, holder(path));
  const chars = Array.from(text);
  let { key: from, end: to } = v;
  if (map.flow) {
    while (/[ ,]/.test(chars[to])) to++;
    if (/^\s*\}/.test(chars.slice(to).join('')))
      while (/[\s,]/.test(chars[from - 1])) from--;
    return spliced(text, from, to, '');
  }
  const others = values.filter((o) => holder(o.path) === map.path);
  if (others.length === 1 && map.path !== '')
    return spliced(text, from, to, '{}');
  while (from > 0 && chars[from - 1] !== '\n') from--;
  while (to < chars.length && chars[to - 1] !== '\n') to++;
  /* "- key: ...": keeps the dash, before the next key. */
  const dash = /^\s*- /.exec(chars.slice(from, v.key).join(''));
  if (dash) {
    const rest = chars.slice(to).join('').replace(/^\s*/, '');
    return chars.slice(0, v.key).join('') + rest;
  }
  return spliced(text, from, to, '');
}

/* Parses an error message of the program about job.yaml into {line, key,
 * text}. */
function errorAt(message) {
  const m = /^job\.yaml:(\d+)?:? ?([^]*)$/.exec(message);
  if (!m) return { line: 0, key: '', text: message };
  const key = /^([\w-]+(?:\[\d+\]|\.[\w-]+)*): /.exec(m[2]);
  return { line: Number(m[1] || 0), key: key ? key[1] : '', text: m[2] };
}

/* --- texts in an address ------------------------------------------------------ */

async function through(bytes, stream) {
  const out = new Blob([bytes]).stream().pipeThrough(stream);
  return new Uint8Array(await new Response(out).arrayBuffer());
}

async function packed(text) {
  const bytes = await through(utf8.encode(text),
    new CompressionStream('deflate-raw'));
  return btoa(String.fromCharCode(...bytes)).replace(/\+/g, '-')
    .replace(/\//g, '_').replace(/=+$/, '');
}

async function unpacked(word) {
  const bytes = Uint8Array.from(
    atob(word.replace(/-/g, '+').replace(/_/g, '/')), (x) => x.charCodeAt(0));
  return fromUtf8.decode(await through(bytes,
    new DecompressionStream('deflate-raw')));
}
