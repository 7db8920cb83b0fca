// Buttons and forms: cancel and resubmit a job, change a flag, copy a command line. Requests carry the page's CSRF token in a header.

function say(text) {
  const place = document.getElementById('said');
  if (place) place.textContent = text;
}

/** Replaces the browser's own message for a network error, which differs between browsers. */
function away(error) {
  throw error instanceof TypeError ? new Error('The server does not answer') : error;
}

/** Sends JSON and returns the JSON answer. Throws with the server's message where it refuses; `errors` has each wrong field. */
export async function send(method, address, values, signal) {
  const token = document.querySelector('meta[name="csrf-token"]')?.content ?? '';
  const answer = await fetch(address, {
    method,
    headers: { 'Content-Type': 'application/json', Accept: 'application/json', ...(token ? { 'X-CSRF-Token': token } : {}) },
    body: JSON.stringify(values),
    signal,
  }).catch(away);
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(body.detail ?? body.title ?? `The server answered ${answer.status}`), { errors: body.errors });
  return body;
}

/** Return the message after a request: `message`, or, of a cancellation, what the state in the answer says. */
function messageOf(message, address, answer) {
  if (!address.endsWith(':cancel') || answer.state === 'cancelled') return message;
  return answer.state === 'cancelling' ? 'Canceled: what runs stops within seconds.' : `Nothing was canceled: it had ended before (${answer.state}).`;
}

async function post(button) {
  button.disabled = true;
  say('');
  try {
    const body = await send(button.dataset.method ?? 'POST', button.dataset.post, {});
    const result = { words: messageOf(button.dataset.done ?? `${button.textContent.trim()}: done.`, button.dataset.post, body), undo: button.dataset.undo ? JSON.parse(button.dataset.undo.replaceAll('{id}', encodeURIComponent(body.id ?? ''))) : null };
    if (button.dataset.then && body.id) leave(button.dataset.then.replace('{id}', encodeURIComponent(body.id)), result);
    else {
      showResult(result);
      document.dispatchEvent(new Event('gonogo:ask'));
    }
  } catch (error) {
    say(`${button.textContent.trim()} failed: ${error.message}`);
    button.disabled = false;
  }
}

/** Sends many requests, one after the other, and says how many arrived. */
async function postAll(button) {
  button.disabled = true;
  const addresses = button.dataset.postAll.split(' ');
  let sent = 0;
  let problem = '';
  for (const address of addresses) {
    try {
      await send('POST', address, {});
      sent += 1;
    } catch (error) {
      problem = `: ${error.message}`;
    }
  }
  say(sent === addresses.length ? '' : `${sent} of ${addresses.length} were sent again${problem}`);
  if (sent === addresses.length) showResult({ words: `${sent === 1 ? 'The message waits' : `${sent} messages wait`} to be sent again. This page counts how ${sent === 1 ? 'it ends' : 'they end'}.` });
  document.dispatchEvent(new Event('gonogo:ask'));
  button.disabled = false;
}

/** Returns the changed fields of a form, and those that the pressed button sends in any case: an emptied field is null, a date begins at midnight UTC, the button counts as a field. */
function changed(form, pressed) {
  const values = {};
  for (const control of form.elements) {
    const sent = pressed?.dataset.sends?.split(' ').includes(control.name);
    const untouched = control.tagName === 'BUTTON' || (control.value === control.defaultValue && !sent);
    if (!control.name || untouched) continue;
    const text = control.value.trim();
    values[control.name] = text === '' ? null : control.type === 'date' ? `${text}T00:00:00Z` : text;
  }
  if (pressed?.name) values[pressed.name] = pressed.dataset.kind === 'json' ? JSON.parse(pressed.value) : pressed.value;
  return values;
}

/** Sends a form's changes to the API. The page reloads afterwards, because much of it may look different. */
async function patch(form, pressed) {
  const values = changed(form, pressed);
  say('');
  if (Object.keys(values).length === 0) {
    say('Nothing changed');
    return;
  }
  const buttons = [...form.querySelectorAll('button')];
  for (const button of buttons) button.disabled = true;
  try {
    const versioned = 'version' in form.dataset;
    const answer = await send('PATCH', form.dataset.patch, versioned ? { ...values, version: Number(form.dataset.version) } : values);
    const before = form.dataset.before ? JSON.parse(form.dataset.before) : {};
    const undoes = !pressed?.name || pressed.name in before; // else nothing can be taken back, such as a test that ran
    const words = pressed?.dataset.done ?? `${pressed?.textContent.trim() || 'Save'}: done.`;
    const { expires, ...others } = before;
    const body = before.state === 'acknowledged' ? { ...others, expires } : 'state' in before ? others : { reason: before.reason, [pressed?.name]: before[pressed?.name] };
    if (versioned) body.version = answer.version; // what somebody else did since stays
    if (form.dataset.before) keepResult({ here: location.href, words, undo: undoes ? { method: 'PATCH', url: form.dataset.patch, body } : null });
    location.reload();
  } catch (error) {
    say(`Not saved: ${error.message}`);
    for (const button of buttons) button.disabled = false;
  }
}

const RESULT = 'gonogo-result';

/** Keeps what an action did for the page that opens next: `here` is its address. */
function keepResult(result) {
  try {
    sessionStorage.setItem(RESULT, JSON.stringify(result));
  } catch {
    // without storage the page shows the new state alone
  }
}

/** Opens a page, which then says what an action did: `words`, and how it is undone. */
export function leave(address, { words, undo }) {
  const to = new URL(address, location.href);
  keepResult({ here: to.href, words, undo });
  location.assign(to);
}

/** Says what the last action did, with a button that undoes it: `undo` is the request. The focus stays where it is. */
function showResult({ words, undo }) {
  const line = document.getElementById('result');
  if (!line) return;
  line.textContent = `${words} `;
  line.hidden = false;
  if (!undo) return;
  const button = line.appendChild(document.createElement('button'));
  button.type = 'button';
  button.textContent = 'Undo';
  // what has ended can't be canceled any more
  const settle = () => {
    if (undo.url.endsWith(':cancel') && document.getElementById('state')?.dataset.final === 'true') button.remove();
  };
  document.addEventListener('gonogo:refreshed', settle);
  settle();
  button.addEventListener('click', async () => {
    button.disabled = true;
    try {
      const answer = await send(undo.method, undo.url, undo.body ?? {});
      keepResult({ here: location.href, words: messageOf(undo.words ?? 'Restored what was there before.', undo.url, answer) });
      location.reload();
    } catch (error) {
      line.append(` Not undone: ${error.message}`);
      button.disabled = false;
    }
  });
}

function showKept() {
  let result = null;
  try {
    result = JSON.parse(sessionStorage.getItem(RESULT));
    sessionStorage.removeItem(RESULT);
  } catch {
    return;
  }
  if (result?.here === location.href) showResult(result);
}

async function copy(button) {
  const text = document.getElementById(button.dataset.copy)?.textContent ?? '';
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    // without https or permission there is no clipboard: select the text instead, so that one key copies it
    getSelection()?.selectAllChildren(document.getElementById(button.dataset.copy));
    button.textContent = 'Selected';
  }
  setTimeout(() => {
    button.textContent = 'Copy';
  }, 1500);
}

/** Makes every `[data-post]` and `[data-copy]` button and every `[data-patch]` form work, also after a refresh. */
export function listen() {
  showKept();
  document.addEventListener('submit', (event) => {
    const form = event.target;
    if (!(form instanceof HTMLFormElement)) return;
    if (!form.dataset.patch) return;
    event.preventDefault();
    patch(form, event.submitter);
  });
  const link = document.getElementById('copy-link');
  if (link) {
    link.hidden = false;
    link.addEventListener('click', async () => {
      const done = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
      link.textContent = done ? 'Link copied' : location.href;
    });
  }
  document.addEventListener('click', (event) => {
    const button = event.target instanceof Element ? event.target.closest('button') : null;
    if (button?.dataset.post) post(button);
    else if (button?.dataset.postAll) postAll(button);
    else if (button?.dataset.copy) copy(button);
  });
}
