// Updates the open page in place: the server renders it again, and the changed parts marked `data-live` are replaced.

let running = null;
const shown = new Map(); // id -> markup as the server sent it (charts draw into the page's own copy)
for (const part of document.querySelectorAll('[data-live]')) shown.set(part.id, part.outerHTML);

/** Fetches this page again and replaces its live parts. Calls made meanwhile share the running one. */
export function refresh() {
  running ??= once().finally(() => {
    running = null;
  });
  return running;
}

const PATIENCE_MS = 20_000;
const SLOW_MS = 2000; // a server that restarts may take a connection and not answer
const AGAIN_MS = 2000;
const LONGEST_PAUSE_MS = 2500; // however long the last answer took: a page is fresh within 5 s, or says that it isn't
const LOST = 'Connection lost. Trying again.'; // also where a proxy answers for the server (502, 503, 504)
const SLOW = 'Waiting for the server. This page may be out of date.';
const REFUSED = { 404: 'This page no longer exists', 429: 'The server is overloaded' };

/** The page can't be updated; the message is for the reader. */
class Stale extends Error {}

const here = () => location.pathname + location.search;

/** Returns why the page can't be updated, in words; "" where it can. */
function refusal(answer) {
  if (answer.redirected) return `${new URL(answer.url).pathname === '/login' ? 'Your login has expired' : 'This page has moved'}. Reload it.`;
  if (answer.ok) return '';
  const why = REFUSED[answer.status] ?? `The server answered ${answer.status}`;
  return answer.status > 501 ? LOST : `${why}. This page is out of date.`;
}

const STOPS = 'a[href], button, input, select, textarea, summary, [tabindex]';

/** Returns a function that finds a link or field again after it was replaced: by its id, else by its address or text, else by its place on the page. */
function finder(stop) {
  const stops = () => [...document.querySelectorAll(STOPS)];
  const key = (each) => each.localName + (each.getAttribute('href') ?? each.textContent);
  const sought = key(stop);
  const alike = () => stops().filter((each) => key(each) === sought);
  const at = alike().indexOf(stop);
  const place = stops().indexOf(stop);
  return () => document.getElementById(stop.id) ?? alike()[at] ?? stops()[place];
}

/** Throws Stale, or the error of `fetch` where the server doesn't answer. */
async function once() {
  const address = here();
  const answer = await fetch(address, { headers: { Accept: 'text/html' }, cache: 'no-store', signal: AbortSignal.timeout(PATIENCE_MS) });
  const why = refusal(answer);
  if (why) throw new Stale(why);
  const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html');
  if (address !== here()) return; // the reader has moved to another seed: that change of the address refreshes by itself
  const focused = document.activeElement;
  const again = focused?.closest('[data-live]') ? finder(focused) : null; // nothing else is replaced
  for (const old of document.querySelectorAll('[data-live]')) {
    const update = fresh.getElementById(old.id);
    if (!update || update.outerHTML === shown.get(old.id)) continue;
    shown.set(old.id, update.outerHTML);
    const open = new Set([...old.querySelectorAll('details[open]')].map((details) => details.id));
    const replacement = document.importNode(update, true);
    for (const details of replacement.querySelectorAll('details')) details.open = open.has(details.id) && details.id !== '';
    old.replaceWith(replacement);
  }
  document.title = fresh.title;
  document.dispatchEvent(new Event('gonogo:replaced')); // what scripts add is there before the focus returns
  if (again && !focused.isConnected) again()?.focus({ preventScroll: true });
  document.dispatchEvent(new Event('gonogo:refreshed'));
}

/** Shows why the page is out of date; "" if it isn't. */
function say(why) {
  const line = document.getElementById('connection');
  if (!line) return;
  if (why && line.textContent !== why) line.textContent = why;
  line.hidden = !why;
}

/**
 * Returns a function that runs `refresh` at once, then at most every `gap` ms (a little longer for a slow server). The last call is never lost.
 * `ask(true)` is a request of the reader, and waits only for the running refresh.
 * While the server doesn't answer or refuses, the page shows that and tries again by itself.
 */
export function paced(gap) {
  let timer = null;
  let reading = false;
  let again = false;
  let wished = false;
  let next = 0;
  return function ask(now = false) {
    if (reading) again = true; // the running answer may not have the newest change
    wished ||= now;
    if (timer !== null && (reading || !now)) return;
    clearTimeout(timer);
    timer = setTimeout(async () => {
      reading = true;
      again = false;
      wished = false;
      const began = performance.now();
      let away = '';
      const slow = setTimeout(say, SLOW_MS, SLOW);
      try {
        await refresh();
      } catch (error) {
        away = error instanceof Stale ? error.message : LOST;
      }
      clearTimeout(slow);
      say(away);
      const took = performance.now() - began;
      next = performance.now() + (away ? AGAIN_MS : Math.max(gap, Math.min(4 * took, LONGEST_PAUSE_MS)));
      timer = null;
      reading = false;
      if (again || (away && !document.hidden)) ask();
    }, wished ? 0 : Math.max(0, next - performance.now()));
  };
}
