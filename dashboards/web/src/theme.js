// Colours live in the style sheet only; charts name them as "$name" and get the value of the custom property --name.

const COLOUR_KEYS = new Set(['color', 'borderColor', 'backgroundColor', 'textBorderColor', 'shadowColor']);

/** The present value of a custom property, by its name without the dashes. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || '#888';
}

/** A deep copy of chart options in which every colour name is a colour; only colour keys are looked at, never data. */
export function painted(value, key = '') {
  if (typeof value === 'string') return COLOUR_KEYS.has(key) && value.startsWith('$') ? colour(value.slice(1)) : value;
  if (Array.isArray(value)) return value.map((item) => painted(item, key));
  if (isPlain(value)) return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, painted(item, name)]));
  return value;
}

function isPlain(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}

/** Calls back whenever the reader's system turns dark or light, and when the page goes to paper and comes back. */
export function onThemeChange(callback) {
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', callback);
  matchMedia('print').addEventListener('change', callback);
}
