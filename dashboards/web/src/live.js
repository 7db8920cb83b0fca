// The job's event stream. There is one connection per job and browser: the tab with the lock reads it and notifies the others
// (a browser opens at most 6 connections to a host). A hidden tab has none.

const AGAIN_MS = 5000;
const TYPES = ['progress', 'verdict', 'state'];

/**
 * Follows a job's events while the tab is visible.
 * @param {string} url the stream's address
 * @param {number} last the number of the last event that the page knows
 * @param {() => void} notify called for every event, whichever tab read it, and when the connection starts again or breaks
 * @returns {() => void} stops for good
 */
export function follow(url, last, notify) {
  const channel = 'BroadcastChannel' in window ? new BroadcastChannel(`gonogo:${url}`) : null;
  let release = null;
  let ended = false;

  function tell(number) {
    last = Math.max(last, number);
    notify();
  }

  function tellAll(number) {
    channel?.postMessage(number);
    tell(number);
  }

  if (channel) channel.onmessage = ({ data }) => tell(data);

  function read() {
    return new Promise((done) => {
      const source = new EventSource(`${url}?after=${last}`);
      source.onopen = () => tellAll(last);
      for (const type of TYPES) source.addEventListener(type, (event) => tellAll(Number(event.lastEventId) || 0));
      release = () => {
        source.close();
        done();
      };
      source.onerror = () => {
        // A lost connection comes back by itself. A closed one means that the job has ended (204), or that a proxy refused.
        if (source.readyState === EventSource.CLOSED) {
          stop();
          setTimeout(start, AGAIN_MS);
        }
        tellAll(last);
      };
    });
  }

  async function start() {
    if (ended || release || document.hidden) return;
    const waiting = new AbortController();
    release = () => waiting.abort();
    try {
      // Web Locks need loopback or https; elsewhere each visible tab reads for itself.
      if (channel && navigator.locks) await navigator.locks.request(`gonogo:${url}`, { signal: waiting.signal }, read);
      else await read();
    } catch (error) {
      if (error.name !== 'AbortError') throw error;
    }
  }

  function stop() {
    release?.();
    release = null;
  }

  function turned() {
    if (document.hidden) return stop();
    notify();
    return start();
  }

  document.addEventListener('visibilitychange', turned);
  addEventListener('pagehide', stop);
  start();
  return () => {
    ended = true;
    document.removeEventListener('visibilitychange', turned);
    stop();
    channel?.close();
  };
}
