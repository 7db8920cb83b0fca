// Forms that create something through the API. The API checks the fields while one types, with the checks of the request itself.
import { leave, send } from './actions.js';
import { beside, mark, put, READ, Unreadable } from './form.js';
import { pickTests } from './picker.js';

const PAUSE_MS = 400;
const ENDS = { ...READ, date: (text) => `${text}T00:00:00Z` };

/** Returns the request. A check sends the stand-ins of fields that are still empty, so that the API checks the other fields. */
function body(form, missing = []) {
  const values = {};
  for (const control of form.querySelectorAll('[data-field]')) {
    const { field, kind } = control.dataset;
    if (kind === 'tick') {
      if (control.checked) put(values, field, true);
      continue;
    }
    const text = (missing.includes(control) ? control.dataset.standIn : control.value).trim();
    if (text !== '') put(values, field, (ENDS[kind] ?? ((value) => value))(text, control));
  }
  return values;
}

/** Returns a message of the API with the value that it is about, unless it has it already. */
function withValue(message, value) {
  const text = typeof value === 'string' || typeof value === 'number' ? String(value) : '';
  return text && !message.includes(text) ? `${message}; given: ${text}` : message;
}

/** Makes the page's creation form work. */
export function create(form) {
  const said = document.getElementById('said');
  const checked = document.getElementById('checked');
  const button = form.querySelector('button.primary');
  const touched = new Set();
  let timer = 0;
  let asking = null;

  function owner(field) {
    const paths = [...form.querySelectorAll('[data-field]')].filter(({ dataset }) => field === dataset.field || field.startsWith(`${dataset.field}.`) || dataset.field.startsWith(`${field}.`));
    return paths.sort((a, b) => b.dataset.field.length - a.dataset.field.length)[0];
  }

  /** Returns the fields that nobody has filled in yet, and which have a stand-in. */
  function missing() {
    const empty = ({ name, value, dataset }) => dataset.standIn && !value.trim() && !touched.has(name) && !form.elements[dataset.alternative]?.value.trim();
    return [...form.querySelectorAll('[data-stand-in]')].filter(empty);
  }

  /** Shows each problem at its field; while one types, an empty field that nobody has touched is not wrong but still needed. */
  function blame(problems, whole, needed = []) {
    const words = new Map();
    const others = [];
    const labels = new Set(needed.map(({ dataset }) => form.elements[dataset.alternative]?.dataset.label ?? dataset.label));
    for (const { field, value, message } of problems) {
      const control = owner(field);
      if (!control) others.push(message);
      else if (whole || control.value || touched.has(control.name)) words.set(control, [...(words.get(control) ?? []), withValue(beside(control, field, message), value)]);
      else labels.add(control.dataset.label);
    }
    checked.textContent = labels.size ? `Still needed: ${[...labels].join(', ')}.` : '';
    for (const control of form.querySelectorAll('[data-field]')) mark(control, (words.get(control) ?? []).join('; '));
    said.textContent = others.join('; ');
    return words.keys().next().value;
  }

  function refused(error, whole, needed = []) {
    if (error instanceof Unreadable) {
      blame([], whole, needed);
      mark(error.control, error.message);
      return error.control;
    }
    if (error.errors?.length) return blame(error.errors, whole, needed);
    blame([], whole, needed);
    said.textContent = error.message;
    return null;
  }

  async function check() {
    asking?.abort();
    const request = (asking = new AbortController());
    const needed = missing();
    try {
      await send('POST', form.dataset.validate, body(form, needed), request.signal);
      if (request !== asking) return;
      blame([], false, needed);
      if (!needed.length) checked.textContent = 'Every check passed.';
    } catch (error) {
      if (request === asking && error.name !== 'AbortError') refused(error, false, needed);
    }
  }

  /** Returns how a creation is undone; null where it replaced something, such as a rule of the same name. */
  function undoOf(answer) {
    const { undoMethod, undoUrl, undoWords } = form.dataset;
    if (!undoUrl || (answer.version ?? 1) > 1) return null;
    return { method: undoMethod, url: undoUrl.replace('{id}', encodeURIComponent(answer.id ?? answer.name)), words: undoWords };
  }

  function done(answer) {
    const { then, noun, done: words } = form.dataset;
    const place = then.replace('{id}', encodeURIComponent(answer.id ?? ''));
    if (!answer.secret) return leave(place, { words, undo: undoOf(answer) });
    const line = document.getElementById('result'); // a secret is shown once, so the reader stays
    line.replaceChildren(`The ${noun} is there. Its secret, which is not shown again: `);
    line.appendChild(document.createElement('code')).textContent = answer.secret;
    line.append(' ');
    const link = line.appendChild(document.createElement('a'));
    link.href = place;
    link.textContent = `Open the ${noun}`;
    line.hidden = false;
    form.hidden = true;
    return line.focus();
  }

  form.addEventListener('input', ({ target }) => {
    touched.add(target.name);
    checked.textContent = '';
    clearTimeout(timer);
    timer = setTimeout(check, PAUSE_MS);
  });
  pickTests(form);
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    clearTimeout(timer);
    asking?.abort();
    asking = null;
    button.disabled = true;
    try {
      done(await send('POST', form.dataset.create, body(form)));
    } catch (error) {
      const wrong = refused(error, true);
      (wrong?.checkVisibility() ? wrong : (form.querySelector('.picker input') ?? wrong))?.focus();
    }
    button.disabled = false;
  });
  button.disabled = false;
  if (location.search) check(); // what the address filled in
}
