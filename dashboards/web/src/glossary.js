// What hovering shows, for keys and touch: the sentence of a term or a verdict that has the focus or was tapped.

const EXPLAINED = '.term, .verdict[title], nav.tabs a[title], th.build a[title]';

/** Makes titles of terms reachable without a mouse. */
export function explain() {
  const note = document.body.appendChild(document.createElement('p'));
  note.id = 'glossary';
  note.setAttribute('role', 'status'); // a screen reader speaks it
  note.hidden = true;
  let shown = null;

  function hide() {
    note.hidden = true;
    shown = null;
  }

  function show(element) {
    shown = element;
    note.textContent = element.title;
    note.hidden = false;
    const at = element.getBoundingClientRect();
    const below = at.bottom + note.offsetHeight + 8 < innerHeight;
    note.style.setProperty('top', `${below ? at.bottom + 6 : Math.max(6, at.top - note.offsetHeight - 6)}px`);
    note.style.setProperty('left', `${Math.max(12, Math.min(at.left, innerWidth - note.offsetWidth - 12))}px`);
  }

  const term = (target) => (target instanceof Element ? target.closest(EXPLAINED) : null);
  document.addEventListener('focusin', ({ target }) => {
    const element = term(target);
    if (element === target && element.title && element.matches(':focus-visible')) show(element);
    else if (shown) hide();
  });
  document.addEventListener('focusout', hide);
  document.addEventListener('click', ({ target }) => {
    const element = term(target);
    if (!element?.title || element.closest('a')) hide();
    else if (shown === element && !element.matches(':focus-visible')) hide();
    else show(element);
  });
  document.addEventListener('keydown', ({ key }) => {
    if (key === 'Escape') hide();
  });
  addEventListener('scroll', hide, { passive: true, capture: true });
}
