// A message instead of a chart that could not be fetched or drawn: why it is missing, and a button that tries again.

/** Shows the message instead of a figure's chart. */
export function unavailable(figure, why, again) {
  available(figure);
  const line = document.createElement('p');
  line.className = 'unavailable';
  line.setAttribute('role', 'alert');
  line.textContent = `This chart is missing: ${why}. `;
  const button = line.appendChild(document.createElement('button'));
  button.type = 'button';
  button.textContent = 'Try again';
  button.addEventListener('click', () => {
    button.disabled = true;
    again();
  });
  figure.querySelector('.canvas').before(line);
}

/** Removes the message: the chart is there. */
export function available(figure) {
  figure.querySelector('.unavailable')?.remove();
}
