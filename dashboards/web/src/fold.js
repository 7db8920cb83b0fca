// On a phone a page shows its first answer, and folds the panels behind it: `data-fold`. Their headings open them.

const phone = matchMedia('(max-width: 620px)');
const opened = new Set(); // ids of headings whose panels the reader opened; a refresh keeps them

function headingOf(panel) {
  return panel.querySelector('header > h2');
}

function show(panel) {
  const heading = headingOf(panel);
  const folds = phone.matches && !opened.has(heading.id);
  panel.classList.toggle('folded', folds);
  let button = panel.querySelector(':scope > header > .unfold');
  if (!button && phone.matches) {
    button = heading.parentElement.appendChild(document.createElement('button'));
    button.type = 'button';
    button.className = 'unfold';
    button.id = `${heading.id}-unfold`;
    button.setAttribute('aria-label', `Show: ${heading.textContent.trim()}`);
  }
  if (!button) return;
  button.hidden = !phone.matches;
  button.setAttribute('aria-expanded', String(!folds));
  button.textContent = folds ? 'Show' : 'Hide';
}

/** Folds the panels of a phone, also after a refresh; `draw` draws the charts of an opened one. */
export function fold(draw) {
  const all = () => document.querySelectorAll('[data-fold]').forEach((panel) => headingOf(panel)?.id && show(panel));
  all();
  document.addEventListener('gonogo:replaced', all);
  phone.addEventListener('change', () => {
    all();
    draw();
  });
  document.addEventListener('click', (event) => {
    const link = event.target instanceof Element ? event.target.closest('.unfold, a[href^="#"]') : null;
    const panel = (link?.hash ? document.getElementById(link.hash.slice(1)) : link)?.closest('[data-fold]');
    if (!panel) return;
    const { id } = headingOf(panel);
    if (link.hash || !opened.delete(id)) opened.add(id); // a link to a heading opens its panel
    show(panel);
    draw();
  });
}
