/* SPDX-License-Identifier: Apache-2.0 */
/* Colours of the page, read from its style, and derived colours. */

const SHADE = 0.45; /* lightness of a device's last chunk */

let colors = {};

function rgb(text) {
  const n = parseInt(text.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

/* Returns the colours for a kind's passes, one shade per chunk of a device.
 * Shades move away from the label's colour, so that labels stay readable. */
function shadesOf(t) {
  const most = Math.max(1, t.rows.most);
  const key = `${most} ${colors.panel}`;
  if (t.shades && t.shades.key === key) return t.shades;
  t.shades = colors.rgb.map((color, k) => {
    const to = rgb(colors.labels[k] === colors['on-dark'] ? '#000000'
      : '#ffffff');
    return Array.from({ length: most }, (_, i) => {
      const by = most > 1 ? SHADE * i / (most - 1) : 0;
      return i === 0 ? colors.kinds[k] : '#' + color.map((c, j) =>
        Math.round(c + (to[j] - c) * by).toString(16).padStart(2, '0')).join('');
    });
  });
  t.shades.key = key;
  return t.shades;
}

/* Relative luminance as defined by WCAG 2. */
function luminance(color) {
  const [r, g, b] = rgb(color).map((c) => (c <= 10.3 ? c / 3294.6
    : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/* Returns the text colour with the highest contrast on `color`. */
function readableOn(color) {
  const at = luminance(color) + 0.05;
  return (luminance(colors['on-dark']) + 0.05) / at >=
    at / (luminance(colors['on-light']) + 0.05) ? colors['on-dark']
    : colors['on-light'];
}

function readColors() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue('--' + name).trim();
  for (const name of ['panel', 'ink', 'soft', 'faint', 'line', 'line-soft',
    'track', 'site', 'on-dark', 'on-light', 'critical', 'found', 'queue',
    'flight', 'mem', 'accent'])
    colors[name] = get(name);
  colors.kinds = KINDS.map((k) => get(k.toLowerCase()));
  colors.rgb = colors.kinds.map(rgb);
  /* Packs a colour into an image's 32-bit pixel: red first, alpha last. */
  colors.packed = colors.rgb.map((c) =>
    new Uint32Array(new Uint8ClampedArray([...c, 255]).buffer)[0]);
  colors.labels = colors.kinds.map(readableOn);
}
