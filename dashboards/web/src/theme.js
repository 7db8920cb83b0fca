// Colors are only in the style sheet; charts name them "$name" and get the value of the custom property --name.

const COLOR_KEYS = new Set(['color', 'borderColor', 'backgroundColor', 'textBorderColor', 'shadowColor']);

/** Returns the current color of a custom property, by its name without the dashes: that of the theme. */
export function color(name) {
  const probe = document.body.appendChild(document.createElement('i'));
  probe.style.color = `var(--${name}, #888)`;
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** Returns a deep copy of chart options with every color name replaced by its color; only color keys are read, never data. */
export function painted(value, key = '') {
  if (typeof value === 'string') return COLOR_KEYS.has(key) && value.startsWith('$') ? color(value.slice(1)) : value;
  if (Array.isArray(value)) return value.map((item) => painted(item, key));
  if (isPlain(value)) return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, painted(item, name)]));
  return value;
}

function isPlain(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}

const COOKIE = 'gonogo-theme'; // the server reads it, so that a page begins in its theme
const YEAR_S = 31_536_000;

/** Makes the switch between light, dark and the system's theme work. */
export function switchTheme() {
  const choice = document.getElementById('theme');
  if (!choice) return;
  choice.hidden = false;
  choice.addEventListener('change', () => {
    const theme = choice.value;
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    document.cookie = `${COOKIE}=${theme}; path=/; SameSite=Strict; max-age=${theme ? YEAR_S : 0}`;
    document.dispatchEvent(new Event('gonogo:theme'));
  });
}

/** Calls back whenever the page turns dark or light, and before and after printing. */
export function onThemeChange(callback) {
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', callback);
  document.addEventListener('gonogo:theme', callback);
  matchMedia('print').addEventListener('change', callback);
}
