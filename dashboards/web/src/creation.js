// Forms that create something through the API. The API checks the fields while one types, with the checks of the request itself.
import { leave, send } from './actions.js';
import { put, READ, Unreadable } from './form.js';
import { pickTests } from './picker.js';

const PAUSE_MS = 400;
const ENDS = { ...READ, date: (text) => `${text}T00:00:00Z` };

function body(form) {
  const values = {};
  for (const control of form.querySelectorAll('[data-field]')) {
    const { field, kind } = control.dataset;
    if (kind === 'tick') {
      if (control.checked) put(values, field, true);
      continue;
    }
    const text = control.value.trim();
    if (text !== '') put(values, field, (ENDS[kind] ?? ((value) => value))(text, control));
  }
  return values;
}

/** Makes the page's creation form work. */
export function create(form) {
  const said = document.getElementById('said');
  const checked = document.getElementById('checked');
  const button = form.querySelector('button.primary');
  const touched = new Set();
  let timer = 0;
  let asking = null;

  function mark(control, message) {
    document.getElementById(`e-${control.name}`).textContent = message;
    if (message) control.setAttribute('aria-invalid', 'true');
    else control.removeAttribute('aria-invalid');
  }

  function owner(field) {
    const paths = [...form.querySelectorAll('[data-field]')].filter(({ dataset }) => field === dataset.field || field.startsWith(`${dataset.field}.`) || dataset.field.startsWith(`${field}.`));
    return paths.sort((a, b) => b.dataset.field.length - a.dataset.field.length)[0];
  }

  /** Shows each problem at its field; while one types, an empty field that nobody has touched is no problem yet. */
  function blame(problems, whole) {
    const words = new Map();
    const others = [];
    for (const { field, message } of problems) {
      const control = owner(field);
      if (!control) others.push(message);
      else if (whole || control.value || touched.has(control.name)) words.set(control, [...(words.get(control) ?? []), message]);
    }
    for (const control of form.querySelectorAll('[data-field]')) mark(control, (words.get(control) ?? []).join('; '));
    said.textContent = others.join('; ');
    return words.keys().next().value;
  }

  function refused(error, whole) {
    checked.textContent = '';
    if (error instanceof Unreadable) {
      blame([], whole);
      mark(error.control, error.message);
      return error.control;
    }
    if (error.errors?.length) return blame(error.errors, whole);
    blame([], whole);
    said.textContent = error.message;
    return null;
  }

  async function check() {
    asking?.abort();
    const request = (asking = new AbortController());
    try {
      await send('POST', form.dataset.validate, body(form), request.signal);
      if (request !== asking) return;
      blame([], false);
      checked.textContent = 'Every check passed.';
    } catch (error) {
      if (request === asking && error.name !== 'AbortError') refused(error, false);
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
}
