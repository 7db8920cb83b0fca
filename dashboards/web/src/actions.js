// Buttons: cancel and resubmit a job, copy a command line. Requests carry the page's CSRF token in a header.

function say(text) {
  const place = document.getElementById('said');
  if (place) place.textContent = text;
}

async function post(button) {
  if (button.dataset.confirm && !confirm(button.dataset.confirm)) return;
  button.disabled = true;
  say('');
  try {
    const token = document.querySelector('meta[name="csrf-token"]')?.content ?? '';
    const answer = await fetch(button.dataset.post, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Accept: 'application/json', ...(token ? { 'X-CSRF-Token': token } : {}) },
      body: '{}',
    });
    const body = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(body.detail ?? body.title ?? `the server answered ${answer.status}`);
    if (button.dataset.then && body.id) location.assign(button.dataset.then.replace('{id}', encodeURIComponent(body.id)));
    else document.dispatchEvent(new Event('gonogo:ask'));
  } catch (error) {
    say(`${button.textContent.trim()} did not work: ${error.message}`);
    button.disabled = false;
  }
}

async function copy(button) {
  const text = document.getElementById(button.dataset.copy)?.textContent ?? '';
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'copied';
  } catch {
    // no clipboard without https or permission: select the text instead, so that one key copies it
    getSelection()?.selectAllChildren(document.getElementById(button.dataset.copy));
    button.textContent = 'selected';
  }
  setTimeout(() => {
    button.textContent = 'copy';
  }, 1500);
}

/** Makes every `[data-post]` and `[data-copy]` button work, those that a refresh brings in later too. */
export function listen() {
  document.addEventListener('click', (event) => {
    const button = event.target instanceof Element ? event.target.closest('button') : null;
    if (button?.dataset.post) post(button);
    else if (button?.dataset.copy) copy(button);
  });
}
